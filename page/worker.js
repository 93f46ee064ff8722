// Python in a thread of its own. The page made this worker with its own address in BASE.
/* global importScripts, loadPyodide, BASE */
"use strict";

const say = (message) => self.postMessage(message);

async function bytes(name) {
  const answer = await fetch(BASE + name);
  if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
  return new Uint8Array(await answer.arrayBuffer());
}

async function start() {
  say({ step: 0, text: "Loading Python" });
  const app = bytes("app.zip");
  importScripts(BASE + "pyodide.js");
  const python = await loadPyodide({ indexURL: BASE });
  say({ step: 1, text: "Loading NumPy and pydantic" });
  await python.loadPackage(["numpy", "pydantic-core"], { messageCallback: () => {} });
  say({ step: 2, text: "Loading Plumbline" });
  const site = python.runPython("import sysconfig; sysconfig.get_path('purelib')");
  python.unpackArchive(await app, "zip", { extractDir: site });
  python.FS.writeFile(site + "/bridge.py", await bytes("bridge.py"));
  const bridge = python.pyimport("bridge");
  say({ step: 3, text: "Ready" });
  return { python, bridge };
}

const started = start();
started.catch((error) => say({ failed: String(error) }));

self.onmessage = async ({ data }) => {
  const { python, bridge } = await started;
  try {
    const files = python.toPy(data.files);
    const [status, out, err] = bridge.check(files).toJs();
    say({ id: data.id, status, out, err });
  } catch (error) {
    say({ id: data.id, status: 1, out: "", err: String(error) });
  }
};
