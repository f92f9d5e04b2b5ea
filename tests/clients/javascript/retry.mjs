// Asks once, with the client's own retries, and prints the names of what was answered, or the error's class.
import { TypeSafeClient } from "@typesafe-ai/sdk";

try {
  const { answers } = await new TypeSafeClient().systemOne(JSON.parse(process.env.ASKED));
  console.log(JSON.stringify({ answers: Object.keys(answers) }));
} catch (error) {
  console.log(JSON.stringify({ refused: error.name, status: error.status }));
}
