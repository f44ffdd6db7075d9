// A sample picture, drawn here: something to ask about before one has a picture at hand.

const WIDTH = 640;
const HEIGHT = 480;

/** Questions that the sample answers. */
export const QUESTIONS = [
  { type: "choice", name: "circle", instructions: "Which colour is the circle?", options: "red\ngreen\nblue" },
  { type: "number", name: "squares", instructions: "How many squares are there?", min: "0", max: "9", step: "1" },
  { type: "noul", name: "above", instructions: "Is the circle above the triangle?" },
  { type: "score", name: "blue", instructions: "How many shapes are blue?", levels: "none\none\ntwo\nthree or more" },
];

/** The picture, as a File. */
export async function drawSample() {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [WIDTH, HEIGHT];
  const paint = canvas.getContext("2d");
  paint.fillStyle = "#f1ede4";
  paint.fillRect(0, 0, WIDTH, HEIGHT);
  paint.fillStyle = "#d42a2a";
  paint.beginPath();
  paint.arc(190, 140, 82, 0, 2 * Math.PI);
  paint.fill();
  paint.fillStyle = "#2457c5";
  for (const [x, y] of [[380, 70], [500, 190], [390, 320]]) paint.fillRect(x, y, 88, 88);
  paint.fillStyle = "#2a9d4a";
  paint.beginPath();
  paint.moveTo(170, 290);
  paint.lineTo(275, 440);
  paint.lineTo(70, 440);
  paint.fill();
  const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
  return new File([blob], "sample.png", { type: "image/png" });
}
