//! Ends of runtimes, clients and processes, and what several processes share.

mod cross_process;
mod fork;
mod process_end;
mod runtimes;
mod shutdown;
