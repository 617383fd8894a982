//! `varve web-password`

use std::io::{self, BufRead, IsTerminal};

use anyhow::{Context, Result, bail};
use varve_web::PasswordHash;
use varve_world::RealRandom;
use zeroize::Zeroizing;

use crate::arguments::WebPasswordArgs;
use crate::invocation::Invocation;
use crate::outcome::CommandOutcome;

pub fn run(invocation: &Invocation, args: &WebPasswordArgs) -> Result<CommandOutcome> {
    let password = if io::stdin().is_terminal() { asked()? } else { first_line()? };
    PasswordHash::of(&password, &RealRandom)?.write_new(&args.file)?;
    if !invocation.quiet && !invocation.json {
        say!("wrote {}", args.file.display());
    }
    Ok(CommandOutcome::Done)
}

fn asked() -> Result<Zeroizing<String>> {
    let ask = |prompt: &str| rpassword::prompt_password(prompt).map(Zeroizing::new);
    let password = ask("password for the web page: ").context("cannot read the password")?;
    if *ask("again: ").context("cannot read the password")? != *password {
        bail!("the two passwords differ");
    }
    Ok(password)
}

fn first_line() -> Result<Zeroizing<String>> {
    let mut line = Zeroizing::new(String::new());
    io::stdin().lock().read_line(&mut line).context("cannot read the password from standard input")?;
    Ok(Zeroizing::new(line.trim_end_matches(['\r', '\n']).to_owned()))
}
