//! Opens the access log, and opens it anew when another program has renamed its file.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use floe_config::AccessLogFormat;
use floe_server::LogFormat;
use floe_server::config::LogOutput;
use rustix::fs::{Mode, OFlags, fcntl_setfl};
use rustix::io::Errno;

use super::messages::log_file;

/// Opens the log in `file`. No file and `-` mean stdout. Returns `None` for the format `quiet`.
///
/// Errors: the file cannot be opened.
pub(crate) fn open(
    format: AccessLogFormat,
    file: Option<&Path>,
) -> anyhow::Result<Option<(LogFormat, Box<dyn LogOutput>)>> {
    let Some(format) = format.lines() else {
        return Ok(None);
    };
    let output: Box<dyn LogOutput> = match file.filter(|file| *file != Path::new("-")) {
        None => Box::new(Stdout(io::stdout())),
        Some(file) => Box::new(LogFile::open(file)?),
    };
    Ok(Some((format, output)))
}

/// Opens a log file for appending. Log rotation may copy and truncate it.
pub(crate) fn append_to(file: &Path, log: &str) -> anyhow::Result<File> {
    open_to_append(file).with_context(|| log_file(log, file))
}

/// A FIFO must have a reader. Without [`OFlags::NONBLOCK`], the server would wait for one.
fn open_to_append(file: &Path) -> io::Result<File> {
    let append = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::CLOEXEC;
    let opened = rustix::fs::open(file, append | OFlags::NONBLOCK, Mode::from_raw_mode(0o666));
    let opened = opened.map_err(|error| match error {
        Errno::NXIO => io::Error::other("no program reads the FIFO; start its reader first"),
        error => error.into(),
    })?;
    fcntl_setfl(&opened, append)?;
    Ok(opened.into())
}

/// The file of the access log.
struct LogFile {
    /// Absolute, because a daemon changes its working directory.
    path: PathBuf,
    file: File,
}

impl LogFile {
    fn open(path: &Path) -> anyhow::Result<LogFile> {
        let file = append_to(path, "access log")?;
        let path = std::path::absolute(path).with_context(|| log_file("access log", path))?;
        Ok(LogFile { path, file })
    }
}

impl LogOutput for LogFile {
    fn reopen(&mut self) -> io::Result<()> {
        self.file = open_to_append(&self.path)
            .map_err(|error| io::Error::other(format!("{}: {error}", self.path.display())))?;
        Ok(())
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Stdout, which cannot be reopened.
struct Stdout(io::Stdout);

impl LogOutput for Stdout {
    fn reopen(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn fifo_without_reader_is_an_error_and_with_one_takes_lines() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("fifo");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, Mode::RWXU).unwrap();
        let error = format!("{:#}", LogFile::open(&path).err().unwrap());
        assert!(error.contains("start its reader first"), "{error}");
        let flags = OFlags::RDONLY | OFlags::NONBLOCK;
        let mut reader: File = rustix::fs::open(&path, flags, Mode::empty())
            .unwrap()
            .into();
        let mut log = LogFile::open(&path).unwrap();
        log.write_all(b"line\n").unwrap();
        drop(log);
        assert_eq!(io::read_to_string(&mut reader).unwrap(), "line\n");
    }

    #[test]
    fn reopened_file_is_a_new_one_and_failure_keeps_the_old_one() {
        let scratch = tempfile::tempdir().unwrap();
        let (path, renamed) = (scratch.path().join("log"), scratch.path().join("log.1"));
        let mut log = LogFile::open(&path).unwrap();
        log.write_all(b"one\n").unwrap();
        fs::rename(&path, &renamed).unwrap();
        fs::create_dir(&path).unwrap();
        let error = log.reopen().unwrap_err().to_string();
        assert!(error.starts_with(path.to_str().unwrap()), "{error}");
        log.write_all(b"two\n").unwrap();
        fs::remove_dir(&path).unwrap();
        log.reopen().unwrap();
        log.write_all(b"three\n").unwrap();
        assert_eq!(fs::read_to_string(&renamed).unwrap(), "one\ntwo\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "three\n");
    }
}
