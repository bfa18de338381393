//! The result of a command, on stdout.

use std::fmt::Display;
use std::io::{self, BufWriter, Read, StdoutLock, Write as _};
use std::ops::ControlFlow;
use std::os::fd::AsFd as _;

use anyhow::Context as _;
use floe_transfer::Error;
use nix::errno::Errno;

/// Prints a line of the result on stdout.
///
/// A reader that closes the pipe early, such as `head`, is not a failure: the exit code still
/// reports the outcome of the work.
pub(crate) fn print(line: impl Display) -> anyhow::Result<()> {
    report(writeln!(io::stdout(), "{line}"))
}

/// A long result on stdout. A write breaks if it is impossible, or if the reader has closed the
/// pipe.
pub(crate) struct LongOutput {
    output: BufWriter<StdoutLock<'static>>,
    failure: io::Result<()>,
}

impl LongOutput {
    pub(crate) fn new() -> LongOutput {
        LongOutput {
            output: BufWriter::new(io::stdout().lock()),
            failure: Ok(()),
        }
    }

    /// Writes text, without a line end behind it.
    pub(crate) fn write(&mut self, text: impl Display) -> ControlFlow<()> {
        match write!(self.output, "{text}") {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.failure = Err(error);
                ControlFlow::Break(())
            }
        }
    }

    /// Ends the output.
    ///
    /// Errors: a part of it is lost.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        report(self.failure.and_then(|()| self.output.flush()))
    }
}

/// The contents of files on stdout.
pub(crate) struct BinaryOutput {
    output: StdoutLock<'static>,
    failure: Option<io::Error>,
}

impl BinaryOutput {
    pub(crate) fn new() -> BinaryOutput {
        BinaryOutput {
            output: io::stdout().lock(),
            failure: None,
        }
    }

    /// Writes a part of the contents.
    ///
    /// Errors: the write fails, or the reader has closed the pipe. [`BinaryOutput::fail`] then
    /// reports what the caller must report.
    pub(crate) fn write(&mut self, chunk: &[u8]) -> Result<(), Error> {
        match self.output.write_all(chunk) {
            Ok(()) => Ok(()),
            Err(error) => {
                self.failure = Some(error);
                Err(Error::NotNeeded)
            }
        }
    }

    /// Copies contents. Returns whether the reader has closed the pipe.
    ///
    /// Errors: those of the contents.
    pub(crate) fn copy(&mut self, contents: &mut dyn Read) -> io::Result<bool> {
        let mut chunk = vec![0; CHUNK_LEN];
        loop {
            match contents.read(&mut chunk)? {
                0 => return Ok(false),
                len if self.write(&chunk[..len]).is_err() => return Ok(true),
                _ => {}
            }
        }
    }

    /// Ends the output after an error of its source, or of a write.
    pub(crate) fn fail(&mut self, error: Error) -> anyhow::Result<()> {
        match self.failure.take() {
            Some(failure) => report(Err(failure)),
            None => Err(error.into()),
        }
    }

    /// Ends the output.
    ///
    /// Errors: a part of it is lost.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        report(match self.failure.take() {
            Some(failure) => Err(failure),
            None => self.output.flush(),
        })
    }
}

/// How much of a file is copied at once, in bytes.
const CHUNK_LEN: usize = 64 * 1024;

/// Reports the errors of stdout that its file system shows only at a close, as NFS does. The close
/// of a copy of the descriptor is enough, and stdout stays open.
///
/// Errors: what was printed is lost.
pub(crate) fn finish_stdout() -> anyhow::Result<()> {
    let finish = || {
        io::stdout().flush()?;
        let copy = io::stdout().as_fd().try_clone_to_owned()?;
        match nix::unistd::close(copy) {
            Err(error) if error != Errno::EINTR => Err(io::Error::from(error)),
            _ => Ok(()),
        }
    };
    report(finish())
}

fn report(written: io::Result<()>) -> anyhow::Result<()> {
    match written {
        Err(source) if source.kind() == io::ErrorKind::StorageFull => Err(Error::File {
            action: "write the result to",
            path: "stdout".into(),
            source,
        }
        .into()),
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write the result to stdout")
        }
        _ => Ok(()),
    }
}
