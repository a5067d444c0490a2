//! Once per fire, and once per request: marked once, begun again where nobody has marked it, and forgotten by nobody.

mod stage;

mod basics;
mod cancel;
mod ends;
mod input;
mod lost_reply;
mod processes;
mod requests;
