// A button behind each command that copies it. Without scripts, a click selects the whole command.
for (const command of navigator.clipboard ? document.querySelectorAll("pre.command") : []) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "button copy";
  button.textContent = "Copy the command";
  button.addEventListener("click", () =>
    navigator.clipboard.writeText(command.textContent).then(
      () => { button.textContent = "Copied"; },
      () => { button.textContent = "The browser does not copy it"; },
    ));
  command.after(button);
}
