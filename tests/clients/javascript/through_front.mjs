// Asks through the documented client, twice at once and then when the token has ended; prints which options came back.
import { choice } from "@typesafe-ai/sdk";
import { client } from "./with_typesafe.mjs";

async function ask() {
  const team = choice("Which team owns the incident?", { billing: null, networking: null });
  const { answers } = await client.systemOne({ state: "HTTP 502 on checkout.", questions: { team } });
  return Object.keys(answers.team.probabilities);
}

const before = [await ask(), await ask()];
await new Promise((resolve) => setTimeout(resolve, Number(process.env.OUTLIVE_MS)));
console.log(JSON.stringify([...before, await ask()]));
