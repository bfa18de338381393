//! The lines and the JSON of `nix path-info`, for `floe info` and `floe nix path-info`.

mod columns;
mod json;
mod queried;

pub(crate) use columns::print_columns;
pub(crate) use json::print_json;
pub(crate) use queried::{Queried, without};
