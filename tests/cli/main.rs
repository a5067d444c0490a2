//! `redlock`, the command line, as a process: what a shell, a crontab and a person at a terminal see.

mod command;
mod counts;
mod doctor;
mod input;
mod jobs;
mod kinds;
mod listing;
mod live;
mod lost;
mod manual;
mod outages;
mod run;
mod signals;
mod terminal;
mod unlock;
mod waiting;
