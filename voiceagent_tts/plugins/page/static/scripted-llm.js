// A scripted language model: known replies, written token by token at a steady rate.

export const SCRIPT = [
  {
    question: "What happens if I miss my flight?",
    reply:
      "Do not worry, that happens more often than you would think. If you are at the airport within " +
      "two hours of departure, the desk can put you on the next flight for free. After that, there is " +
      "a fee of 45 euros, and your bags travel separately. Would you like me to send you the address " +
      "of the service desk?",
  },
  {
    question: "Read me the steps to reset my router.",
    reply:
      "First, unplug the power cable and wait for ten seconds. Second, hold the small button on the " +
      "back with a paper clip until the lights blink. Third, plug it in again and wait for the green " +
      "light, which takes about three minutes. Your old password will not work any more: the new one " +
      "is on the sticker underneath.",
  },
  {
    question: "Kannst du mir das Wetter für morgen sagen?",
    reply:
      "Gerne. Morgen früh ist es neblig bei vier Grad, ab Mittag kommt die Sonne heraus, und am " +
      "Nachmittag werden es bis zu zwölf Grad. Gegen Abend zieht von Westen Regen auf, also nimm " +
      "lieber einen Schirm mit.",
  },
  {
    question: "¿A qué hora abre la farmacia?",
    reply:
      "La farmacia de la plaza abre a las nueve y media y cierra a las dos. Por la tarde abre otra vez " +
      "de cinco a ocho. Los domingos está cerrada, pero hay una de guardia en la calle Mayor.",
  },
];

// Yields tokens (pieces of words, with the space before them) until `signal` aborts.
export async function* writeTokens(reply, tokensPerS, signal) {
  for (const [token] of reply.matchAll(/\s*\S{1,5}/gu)) {
    await new Promise((resolve) => setTimeout(resolve, 1000 / tokensPerS()));
    if (signal.aborted) return;
    yield token;
  }
}
