//! The app as its clients see it: real instances, a real Redis, both databases.
mod api;
mod away;
mod bad_input;
mod primitives;
mod start;
mod story;
mod up;
mod world;
