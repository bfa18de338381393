//! Groups of arguments that several commands have. docs/interface.md describes the command line.

mod columns;
mod hash;
mod json_format;
mod names;
mod number;
mod options;
mod output;
mod paths;
mod source;
mod store;
mod trust;

pub(crate) use columns::ColumnArgs;
pub(crate) use hash::hash_algorithm;
pub(crate) use json_format::json_format;
pub(crate) use names::NameArgs;
pub(crate) use number::{
    parse_bytes, parse_count, parse_freed, parse_number, parse_seconds, parse_time_span,
    parse_timeout,
};
pub(crate) use options::OptionArgs;
pub(crate) use output::{LogArgs, LogFormat, OutputArgs, log_format};
pub(crate) use paths::{PathArgs, read_paths};
pub(crate) use source::{ClosureArgs, QueryArgs, SourceArgs};
pub(crate) use store::{LocalStoreArgs, StoreQueryArgs};
pub(crate) use trust::TrustArgs;
