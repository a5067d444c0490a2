//! The program `redlock`, built with this member so that its tests find it.

use std::process::ExitCode;

fn main() -> ExitCode {
    redlock_cli::main()
}
