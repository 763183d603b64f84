// Builds dist/esm and dist/cjs with the native compiler, which takes a tenth of the time.
// The package "typescript" is of version 5, which openapi-typescript needs.
import { spawnSync } from "node:child_process";
import { rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const folder = fileURLToPath(new URL("..", import.meta.url));
rmSync(`${folder}/dist`, { recursive: true, force: true });
for (const project of ["tsconfig.json", "tsconfig.cjs.json"]) {
  const compiler = `${folder}/node_modules/typescript-native/bin/tsc`;
  const { status } = spawnSync(process.execPath, [compiler, "-p", project], { cwd: folder, stdio: "inherit" });
  if (status !== 0) process.exit(status ?? 1);
}
// the package is "type": "module"; this tells Node and TypeScript that dist/cjs is not
writeFileSync(`${folder}/dist/cjs/package.json`, '{ "type": "commonjs" }\n');
