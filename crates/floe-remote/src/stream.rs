//! The byte stream to a daemon: a socket, or the input and output of a program.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use floe_transfer::Events;
use parking_lot::Mutex;
use rustix::pipe::fcntl_setpipe_size;

use crate::program_log::ProgramLog;
use crate::remote_log::RemoteLog;

/// A byte stream to a daemon.
pub(crate) struct Stream {
    pub(crate) input: Box<dyn Write + Send>,
    pub(crate) output: Output,
    pub(crate) peer: Peer,
}

/// The bytes that the daemon sends.
pub(crate) struct Output {
    reader: Box<dyn Read + Send>,
    /// The descriptor behind the reader, to wait for bytes.
    descriptor: OwnedFd,
}

/// The other side of a stream.
#[derive(Debug)]
pub(crate) enum Peer {
    Socket(UnixStream),
    Program(Program),
}

/// A program that this process has started.
#[derive(Debug)]
pub(crate) struct Program {
    /// Whether it is ssh itself.
    is_ssh: bool,
    /// The remedy if ssh itself fails.
    ssh_advice: &'static str,
    /// `None` after its end was left to a thread.
    child: Option<Mutex<Child>>,
    /// Its standard error.
    lines: ProgramLog,
    /// Disconnected when its standard error has ended.
    log: Mutex<mpsc::Receiver<()>>,
}

impl Stream {
    /// Connects to a socket.
    pub(crate) fn connect(socket: &Path) -> io::Result<Stream> {
        let stream = UnixStream::connect(socket)?;
        Ok(Stream {
            input: Box::new(stream.try_clone()?),
            output: Output::new(stream.try_clone()?)?,
            peer: Peer::Socket(stream),
        })
    }

    /// Starts a program. The lines of its standard error become events, as messages of `name`.
    /// `advice` is what to do about a failure of ssh itself.
    pub(crate) fn start(
        (mut command, advice): (Command, &'static str),
        name: &str,
        events: &Events,
    ) -> io::Result<Stream> {
        let is_ssh = command.get_program() == "ssh";
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let lines = ProgramLog::new(RemoteLog::new(name, events));
        let (log_end, log) = mpsc::channel();
        // From here on, an error ends the program.
        let peer = Peer::Program(Program {
            is_ssh,
            ssh_advice: advice,
            child: Some(Mutex::new(child)),
            lines: lines.clone(),
            log: Mutex::new(log),
        });
        let (Some(input), Some(output), Some(errors)) = pipes else {
            return Err(io::Error::other("the program has no pipes"));
        };
        for pipe in [input.as_fd(), output.as_fd()] {
            // A user may have too many large pipes already. Then this one stays small.
            let _: Result<usize, _> = fcntl_setpipe_size(pipe, PIPE_LEN);
        }
        let report = move || lines.read(errors, log_end);
        // Another process that has the pipe may keep this thread for longer than the program.
        thread::Builder::new()
            .name("floe-remote-log".into())
            .spawn(report)?;
        Ok(Stream {
            input: Box::new(input),
            output: Output::new(output)?,
            peer,
        })
    }
}

impl Output {
    fn new(reader: impl Read + AsFd + Send + 'static) -> io::Result<Output> {
        Ok(Output {
            descriptor: reader.as_fd().try_clone_to_owned()?,
            reader: Box::new(reader),
        })
    }

    /// Waits until bytes are there, at most for a time. Returns whether they are.
    pub(crate) fn wait(&self, time: Duration) -> io::Result<bool> {
        let events = rustix::event::PollFlags::IN;
        let mut descriptors = [rustix::event::PollFd::new(&self.descriptor, events)];
        let time = time.try_into().map_err(io::Error::other)?;
        match rustix::event::poll(&mut descriptors, Some(&time)) {
            Ok(count) => Ok(count > 0),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl Read for Output {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.reader.read(buffer)
    }
}

impl Peer {
    /// Ends the stream at once. Reads and writes of other threads end.
    pub(crate) fn close(&self) {
        match self {
            // The peer may have closed it already.
            Peer::Socket(stream) => drop(stream.shutdown(Shutdown::Both)),
            Peer::Program(program) => program.kill(),
        }
    }

    /// Shows the lines of a program that has begun to serve, and from now on each at once.
    pub(crate) fn show_lines(&self) {
        if let Peer::Program(program) = self {
            program.lines.show_from_now_on();
        }
    }

    /// Ends the stream after all replies have arrived, and after the input was closed. A program
    /// ends by itself.
    pub(crate) fn end(&self) {
        if let Peer::Socket(_) = self {
            self.close();
        }
    }

    /// Returns what the user can do about a stream that ends before its first byte.
    pub(crate) fn advice_at_start(&self) -> &'static str {
        match self {
            Peer::Socket(_) => {
                "; its log tells why, perhaps because allowed-users in its nix.conf excludes this \
                 user"
            }
            Peer::Program(program) => match program.exit_code() {
                Some(0) => SHELL_ENDS,
                Some(SSH_FAILED) if program.is_ssh => program.ssh_advice,
                Some(_) if program.is_ssh => ADMITS_OTHER_WORDS,
                _ => "",
            },
        }
    }

    /// Returns what the user can do about other first bytes than those of the protocol.
    pub(crate) fn advice_about_text(&self) -> &'static str {
        match self {
            Peer::Socket(_) => "",
            Peer::Program(_) => SHELL_PRINTS,
        }
    }

    /// Returns why the stream ended, as far as the system or the program tells.
    pub(crate) fn end_reason(&self) -> String {
        match self {
            Peer::Socket(_) => "the daemon has closed the connection".into(),
            Peer::Program(program) => program.end_reason(),
        }
    }
}

impl Program {
    fn kill(&self) {
        if let Some(child) = &self.child {
            // It may have ended already.
            let _: io::Result<()> = child.lock().kill();
        }
    }

    /// Returns the exit code of a program that has ended.
    fn exit_code(&self) -> Option<i32> {
        wait(self.child.as_ref()?, Duration::ZERO)?.code()
    }

    fn end_reason(&self) -> String {
        let status = self.child.as_ref().and_then(|child| wait(child, EXIT_WAIT));
        // Its last words follow at once.
        let _: Result<(), RecvTimeoutError> = self.log.lock().recv_timeout(LOG_WAIT);
        let last = self.lines.take_last_lines();
        let last = if last.is_empty() {
            String::new()
        } else {
            format!(": {}", last.join(" / "))
        };
        match status {
            Some(status) if status.code() == Some(NOT_FOUND) => format!(
                "the other side has no such program{last}; install Nix there, or name the place of \
                 nix-daemon with ?remote-program=PROGRAM"
            ),
            Some(status) if self.is_ssh && status.code() == Some(SSH_FAILED) => {
                format!("ssh has failed{last}")
            }
            Some(status) => format!("the program at the other end has ended ({status}){last}"),
            None => format!("the program at the other end has closed the connection{last}"),
        }
    }
}

/// Waits for the end of a program, at most for a time.
fn wait(child: &Mutex<Child>, time: Duration) -> Option<ExitStatus> {
    let began = Instant::now();
    loop {
        if let Ok(Some(status)) = child.lock().try_wait() {
            return Some(status);
        }
        if began.elapsed() > time {
            return None;
        }
        thread::sleep(EXIT_POLL);
    }
}

impl Drop for Program {
    /// Leaves the end of the program to a thread, because ssh needs round trips for it. If this
    /// process ends before, the program still ends after its input.
    fn drop(&mut self) {
        self.lines.show_from_now_on();
        let Some(child) = self.child.take() else {
            return;
        };
        if wait(&child, Duration::ZERO).is_some() {
            return;
        }
        let end = move || {
            if wait(&child, EXIT_WAIT).is_none() {
                let mut child = child.lock();
                let _: io::Result<()> = child.kill();
                let _: io::Result<ExitStatus> = child.wait();
            }
        };
        // Without a thread, the program ends after its input, too.
        let _: io::Result<thread::JoinHandle<()>> = thread::Builder::new().spawn(end);
    }
}

/// The capacity of the pipes to a program, in bytes: a few chunks of a NAR, so that both sides work
/// at once.
const PIPE_LEN: usize = 1024 * 1024;

/// How long a program may take to end after its input or its output.
const EXIT_WAIT: Duration = Duration::from_secs(5);

/// How long the last lines of a program may take after its end.
const LOG_WAIT: Duration = Duration::from_millis(200);

/// The status of a shell that has not found a program.
const NOT_FOUND: i32 = 127;

/// The status of ssh for its own failures (ssh(1)).
const SSH_FAILED: i32 = 255;

/// The remedy for a shell that ends before the program starts.
const SHELL_ENDS: &str = "; perhaps a start file of the shell there, such as .bashrc, ends with \
                          exit";

/// The remedy for a key that admits only the words that Nix sends.
const ADMITS_OTHER_WORDS: &str = "; if the other side admits only the command of Nix, add \
                                  ?remote-program=nix-daemon (nix-store for ssh://) to the URI";

/// The remedy for a shell that prints something before the program starts.
const SHELL_PRINTS: &str = "; probably the shell there printed them: remove the output of its \
                            start files, such as .bashrc";

/// How often floe looks whether a program has ended.
const EXIT_POLL: Duration = Duration::from_millis(2);
