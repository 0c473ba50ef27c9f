const byId = id => document.getElementById(id);
const EVERY_MS = 2000;
let token = sessionStorage.getItem("streamkit-token");
let timer = null;

byId("token-form").onsubmit = event => {
  event.preventDefault();
  token = byId("token").value;
  sessionStorage.setItem("streamkit-token", token);
  show();
};

/* The host by which the reader reached this page reaches the other ports too. */
function linkTo(each) {
  const link = document.createElement("a");
  const port = each.address.slice(each.address.lastIndexOf(":") + 1);
  link.href = location.protocol + "//" + location.hostname + ":" + port + "/";
  link.textContent = each.application;
  return link;
}

function cell(row, content, kind) {
  const made = row.insertCell();
  made.className = kind || "";
  made.append(content);
}

function draw(applications) {
  byId("applications").replaceChildren();
  for (const each of applications) {
    const row = byId("applications").insertRow();
    cell(row, linkTo(each));
    cell(row, each.file);
    cell(row, each.shown_state);
    cell(row, each.tasks, "n");
    cell(row, Math.round(each.rate).toLocaleString("en"), "n");
    cell(row, each.lag === null ? "" : each.lag.toLocaleString("en"), "n");
  }
}

async function show() {
  clearTimeout(timer);
  let problem = "";
  try {
    const response = await fetch("applications", {headers: token ? {Authorization: "Bearer " + token} : {}});
    byId("login").hidden = response.status !== 401;
    const body = await response.json();
    if (response.ok) draw(body);
    else problem = response.status === 401 && !token ? "" : body.error || response.statusText;
  } catch (error) {
    problem = "the server does not answer: " + error.message;
  }
  byId("problem").textContent = problem;
  byId("problem").hidden = !problem;
  clearTimeout(timer);
  if (byId("login").hidden) timer = setTimeout(show, EVERY_MS);
}
show();
