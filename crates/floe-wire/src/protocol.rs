//! The protocols that a client speaks.

/// A protocol between a client and the Nix of another machine or process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The worker protocol of the daemon (`daemon`, `unix://`, `ssh-ng://`).
    Worker,
    /// The serve protocol of `nix-store --serve` (`ssh://`). It has no error messages: the other
    /// side prints the error and ends.
    Serve,
}
