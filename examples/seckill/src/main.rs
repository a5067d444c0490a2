//! A flash sale: many users rush for few vouchers, and each may have one.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command, RushArgs};
use crate::summary::Summary;

mod cli;
mod db;
mod instance;
mod rush;
mod summary;

/// The sale came out wrong.
const WRONG: u8 = 1;
/// The sale could not be held: wrong input, no Redis, no room on the disk.
const NOT_HELD: u8 = 2;

#[tokio::main]
async fn main() -> ExitCode {
    let Cli {
        command: Command::Rush(args),
    } = Cli::parse();
    if let Err(problem) = args.check() {
        eprintln!("error: {problem}");
        return ExitCode::from(NOT_HELD);
    }
    match rush::run(&args).await {
        Ok(summary) => report(&args, &summary),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(NOT_HELD)
        }
    }
}

/// Prints the summary on stdout and what is wrong with it on stderr.
fn report(args: &RushArgs, summary: &Summary) -> ExitCode {
    let text = if args.json {
        serde_json::to_string(summary).expect("a summary is numbers and strings") + "\n"
    } else {
        summary.to_string()
    };
    // Whoever reads may have gone away; the exit code is still theirs to have.
    let _ = io::stdout().write_all(text.as_bytes());

    let problems = summary.problems();
    for problem in &problems {
        eprintln!("wrong: {problem}");
    }
    if problems.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(WRONG)
    }
}
