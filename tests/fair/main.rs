//! FairLock: its order, its queue in Redis, and dead waiters.

mod stage;

mod beats;
mod cost;
mod damage;
mod dead;
mod deadlines;
mod java;
mod leaving;
mod looks;
mod order;
mod scripts;
mod wake;
