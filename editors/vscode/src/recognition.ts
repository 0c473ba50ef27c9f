/** Which YAML files are topologies or their tests, by their name and their text. */

const TESTS = /\.test\.ya?ml$/;
/** The key by which `streamkit validate FOLDER` finds topologies. */
const TOPOLOGY = /^\s*\{?\s*["']?streamkit["']?\s*:/m;
const TEST_KEYS = /^(tests|topology)\s*:/m;
const SCHEMA = /^#\s*yaml-language-server:\s*\$schema=.*\b(topology|test)\.schema\.json\s*$/m;

/** Return whether a YAML file belongs to streamkit. A new, empty test file does. */
export function isStreamkit(name: string, text: string): boolean {
  if (isTestFile(name)) return text.trim() === "" || TEST_KEYS.test(text) || SCHEMA.test(text);
  return TOPOLOGY.test(text) || SCHEMA.test(text);
}

/** Return whether a file has tests rather than a topology. */
export function isTestFile(name: string): boolean {
  return TESTS.test(name);
}
