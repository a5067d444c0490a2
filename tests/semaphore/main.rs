//! Semaphores, with and without leases: no permit is lost or created, whatever happens.

mod stage;

mod cancel;
mod faults;
mod full;
mod input;
mod late;
mod leases;
mod limit;
mod limits;
mod mixed;
mod processes;
mod turns;
mod waiting;
