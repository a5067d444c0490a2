//! What users may rely on beside what locks do: the public types, names, what is refused, the packages, the pages.

mod api_contract;
mod bad_input;
mod manifest;
mod names;
mod pages;
