//! The answer to a submit that was not accepted.

/// Why a value was not accepted.
#[derive(Debug, PartialEq, Eq)]
pub enum SubmitError<T> {
    /// So many values of this thread wait already that it should wait as well. None was made.
    Busy,
    /// Nobody takes values any more. Here is the value, if it was made before that was known.
    Closed(Option<T>),
}
