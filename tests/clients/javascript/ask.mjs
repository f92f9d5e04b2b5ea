// Asks the server at TYPESAFE_BASE_URL through the client, and prints what came of each call.
import * as sdk from "@typesafe-ai/sdk";

const { choice, noul, score, TypeSafeClient } = sdk;
const { state, options, levels, tooMany, keyed } = JSON.parse(process.env.ASKED);
const questions = {
  "wake someone?": noul("Should we wake an on-call engineer?", { true: "customers are affected now" }),
  odd: choice("Which word fits?", Object.fromEntries(options.map((option) => [option, null]))),
  severity: score("How severe is customer impact?", levels),
};

/** What a call came to: its result, or its error's class with what it says. */
async function outcome(call) {
  try {
    return { answered: await call };
  } catch (error) {
    const own = Object.entries(sdk).find(([, each]) => each === error.constructor);
    const { status, requestId, message } = error;
    return { refused: own?.[0], status, requestId, message };
  }
}

/** Sends everything without its key. */
function losing(url, { headers: { Authorization, ...headers }, ...init }) {
  return fetch(url, { ...init, headers });
}

const client = new TypeSafeClient();
const asked = await client.systemOne({ state, questions }).withResponse();
console.log(
  JSON.stringify({
    // As pairs: an object would not tell in which order keys came that look like numbers.
    answers: Object.entries(asked.data.answers).map(([name, { probabilities, ...answer }]) => [
      name,
      { ...answer, probabilities: probabilities && Object.entries(probabilities) },
    ]),
    model: asked.data.model,
    usage: asked.data.usage,
    requestId: asked.requestId,
    models: await client.models.list(),
    json: await outcome(client.systemOne({ state: { alarm: [state, null, 7] }, questions })),
    unknownModel: await outcome(client.systemOne({ state, questions, model: "gpt-6" })),
    unanswerable: await outcome(client.systemOne({ state, questions: { team: score("How severe?", tooMany) } })),
    wrongKey: await outcome(new TypeSafeClient({ baseURL: keyed, apiKey: "wrong" }).models.list()),
    lostKey: await outcome(new TypeSafeClient({ baseURL: keyed, fetch: losing }).systemOne({ state, questions })),
    rightKey: await outcome(new TypeSafeClient({ baseURL: keyed, apiKey: process.env.KEY }).models.list()),
  }),
);
