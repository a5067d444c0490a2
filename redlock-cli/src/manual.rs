//! Completions and man pages, made from the arguments that the program takes.

use std::io::{Write, stdout};

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Cli;
use crate::exit::{Code, Failure};

pub(crate) fn completions(shell: Shell) -> Result<Code, Failure> {
    // It panics if it cannot write.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "redlock", &mut text);
    stdout().write_all(&text)?;
    Ok(Code::DONE)
}

pub(crate) fn man(page: Option<&str>) -> Result<Code, Failure> {
    let mut all = Cli::command();
    all.build();
    let command = match page {
        None => all,
        Some(name) => {
            let found = all.find_subcommand(name).cloned();
            let found =
                found.ok_or_else(|| Failure::usage(format!("there is no command {name}")))?;
            // `all` has the whole command line as its usage.
            found.display_name(format!("redlock-{name}"))
        }
    };
    Man::new(command).render(&mut stdout())?;
    Ok(Code::DONE)
}
