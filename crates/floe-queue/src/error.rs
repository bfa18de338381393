//! The error of a submit.

/// The reason why a value was not accepted.
#[derive(Debug, PartialEq, Eq)]
pub enum SubmitError<T> {
    /// The queue of this thread is full. `make` was not called.
    Busy,
    /// The receiver has closed. Contains the value if `make` was called before that was known.
    Closed(Option<T>),
}
