// Builds the page into the package of the dashboard, with a digest of what it was built from (see make web).
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { copyFileSync, readFileSync, readdirSync, writeFileSync } from "node:fs";

const out = "../client/elasticdl/dashboard/static";
await build({
  entryPoints: { app: "src/app.tsx" },
  outdir: out,
  bundle: true,
  minify: true,
  target: "es2022",
  legalComments: "inline",
});
copyFileSync("src/index.html", `${out}/index.html`);

const digest = createHash("sha256");
const sources = [...readdirSync("src").map((name) => `src/${name}`), "build.mjs", "package-lock.json", "package.json", "tsconfig.json"];
for (const name of sources.sort()) digest.update(`${name}\0`).update(readFileSync(name)).update("\0");
writeFileSync(`${out}/sources.txt`, `${digest.digest("hex")}\n`);
