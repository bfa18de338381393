//! `floe install --follow`: a profile whose newest generation is the path of a pin.

mod interval;
mod state;

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, thread};

use anyhow::{anyhow, bail};
use floe_names::NameSpec;
use floe_store::{Generation, Generations, Profile, StoreError, StoreLayout};
use floe_transfer::{CANCEL_POLL, Error, StoreConfig};
use rustix::process::{Pid, Signal, kill_process_group};

use super::args::InstallArgs;
use crate::display::{eprint_error, report_event, warn};
use crate::exit::UsageError;
use crate::open_files;
use crate::options::{self, Settings};
use crate::package_names::PackageNames;
use crate::signals;
use interval::Pauses;
use state::FollowState;

/// Follows a pin: once, or again and again until a signal.
///
/// Errors: with `--every`, only those of the arguments and of the state.
pub(super) fn run(
    args: &InstallArgs,
    settings: &Settings,
    (name, caches): (&str, &[Arc<dyn StoreConfig>]),
    target: &dyn StoreConfig,
) -> anyhow::Result<()> {
    let Some(layout) = target.layout() else {
        bail!(UsageError(format!(
            "cannot follow {name}: {target} is not a local store; use --root or --store"
        )));
    };
    let Some(Some(profile)) = &args.transfer.profile else {
        bail!(UsageError(format!(
            "cannot follow {name}: no profile is named; add --profile LINK"
        )));
    };
    let spec = NameSpec::parse(name)?;
    let options = (Some(&layout.store_dir), true);
    let mut packages = PackageNames::new(settings, &args.names, options)?;
    packages.set_keys(settings.trusted_keys(&args.transfer.trust)?);
    if !packages.use_only_pins(caches) {
        bail!(UsageError(format!(
            "cannot follow {name}: no source is a binary cache with pins; name one with --from"
        )));
    }
    let stop = Arc::new(AtomicBool::new(false));
    signals::raise_on_signals(&stop)?;
    let mut follower = Follower {
        args,
        layout,
        profile: Profile::check(layout, profile)?,
        state: FollowState::open(settings.config.state_dir.as_deref(), profile)?,
        packages,
        spec,
        stop,
        failed: None,
    };
    let Some(every) = args.every else {
        let step = follower.step()?;
        if follower.is_stopped() {
            bail!(Error::Cancelled);
        }
        return match step {
            Step::Failed(error) => Err(error),
            Step::Unchanged | Step::Switched => Ok(()),
        };
    };
    let mut pauses = Pauses::new(every);
    while !follower.is_stopped() {
        let pause = match follower.step() {
            Ok(step) => {
                if let Step::Failed(error) = step {
                    eprint_error(format!("{error:#}"));
                }
                pauses.after_success()?
            }
            Err(error) => {
                let pause = pauses.after_failure()?;
                eprint_error(format!("{error:#}; next attempt in {} s", pause.as_secs()));
                pause
            }
        };
        follower.wait(pause);
    }
    report_event("stopped", &format!("stopped following {name}"));
    Ok(())
}

/// The outcome of a step after the cache has replied.
#[derive(Debug)]
enum Step {
    Unchanged,
    Switched,
    /// The path could not be installed, or its command failed.
    Failed(anyhow::Error),
}

/// A path that failed.
struct FailedPath {
    path: String,
    next_attempt: Instant,
    pauses: Pauses,
}

struct Follower<'a> {
    args: &'a InstallArgs,
    layout: &'a StoreLayout,
    profile: Profile,
    state: FollowState,
    packages: PackageNames<'a>,
    spec: NameSpec,
    stop: Arc<AtomicBool>,
    failed: Option<FailedPath>,
}

impl Follower<'_> {
    /// Asks for the pin. If the profile has another path, or the command has not ended for this
    /// path, installs the path and runs the command.
    ///
    /// Errors: the cache does not reply, or its pin is refused.
    fn step(&mut self) -> anyhow::Result<Step> {
        // Another process may have seen a newer pin.
        self.packages.read_seen_pins();
        let mut resolved = self.packages.ask(std::slice::from_ref(&self.spec))?;
        let resolved = resolved.remove(0);
        resolved.notes.iter().for_each(warn);
        let path = self.layout.store_dir.full_path(&resolved.path);
        let current = self.current()?;
        let is_current = current.as_ref().is_some_and(|(_, target)| *target == path);
        let is_done = self.args.run.is_none() || self.state.is_done(&path);
        let is_early = self
            .failed
            .as_ref()
            .is_some_and(|failed| failed.path == path && Instant::now() < failed.next_attempt);
        if is_current && is_done || is_early || self.is_stopped() {
            return Ok(Step::Unchanged);
        }
        let serial = resolved.pin.map_or(0, |pin| pin.serial);
        match self.move_to(
            &path,
            current.filter(|_| !is_current).map(|(number, _)| number),
        ) {
            Ok(()) => self.failed = None,
            Err(error) => {
                self.record_failure(path)?;
                return Ok(Step::Failed(error));
            }
        }
        report_event(
            "switched",
            &format!(
                "{} is at {path}, the pin {} with the serial number {serial}",
                self.profile.path().display(),
                self.spec
            ),
        );
        Ok(Step::Switched)
    }

    /// Installs a path, unless it is the current one, and runs the command. `before` is the
    /// generation that is left.
    fn move_to(&mut self, path: &str, before: Option<u64>) -> anyhow::Result<()> {
        // A process that was killed has left this one.
        let before = self.state.before(path).or(before);
        if self.args.run.is_some() {
            self.state.begin(path, before)?;
        }
        let is_current = self.current()?.is_some_and(|(_, target)| target == path);
        if !is_current {
            self.install(path)?;
        }
        if self.args.run.is_some() {
            self.switch(path, before)?;
            self.state.end(path)?;
        }
        Ok(())
    }

    /// Records that a path failed, so that the next attempts come more and more seldom.
    fn record_failure(&mut self, path: String) -> anyhow::Result<()> {
        let known = self.failed.take().filter(|failed| failed.path == path);
        let every = self.args.every.unwrap_or_default();
        let mut pauses = known.map_or_else(|| Pauses::new(every), |failed| failed.pauses);
        let next_attempt = Instant::now() + pauses.after_failure()?;
        self.failed = Some(FailedPath {
            path,
            next_attempt,
            pauses,
        });
        Ok(())
    }

    /// Returns the number and the target of the current generation.
    fn current(&self) -> anyhow::Result<Option<(u64, String)>> {
        let Generations { all, current } = match self.profile.generations() {
            Ok(generations) => generations,
            // The first switch makes the profile.
            Err(StoreError::NoProfile { .. }) => return Ok(None),
            Err(_) if !self.profile.path().parent().is_some_and(Path::exists) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let found = all.into_iter().find(|it| Some(it.number) == current);
        Ok(found.map(|it| (it.number, it.target.display().to_string())))
    }

    /// Installs a path in a process of its own, which gets the arguments of this one. So each copy
    /// begins and ends as that of a command does.
    fn install(&self, path: &str) -> anyhow::Result<()> {
        // The file of this program may have another name now, or none.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("floe");
        command.args(arguments_of_copy(env::args_os().skip(1)));
        command.arg(path);
        let status = self.run_to_end(&mut command)?;
        if !status.success() {
            bail!("cannot install {path}: floe install ended with {status}");
        }
        Ok(())
    }

    /// Runs the command for a new generation. If it fails, switches back to the generation before,
    /// and runs the command for that.
    fn switch(&mut self, path: &str, before: Option<u64>) -> anyhow::Result<()> {
        let failure = match self.run_command(path, false) {
            Ok(()) => return Ok(()),
            // The next process begins with the command again.
            Err(error) if self.is_stopped() => return Err(error),
            Err(error) => error.context(format!("cannot switch to {path}")),
        };
        let Some(number) = before else {
            return Err(failure.context("there is no other generation to go back to"));
        };
        match self.switch_back(number) {
            Ok(()) => {
                self.state.give_up()?;
                Err(failure)
            }
            Err(error) => Err(failure.context(format!("cannot switch back: {error:#}"))),
        }
    }

    fn switch_back(&self, number: u64) -> anyhow::Result<()> {
        let lock_wait = options::lock_wait(self.stop.clone());
        let accept = |_: &Generation| Ok::<(), anyhow::Error>(());
        self.profile
            .switch(self.layout, Some(number), &lock_wait, accept)?;
        let old = self
            .current()?
            .map_or_else(String::new, |(_, target)| target);
        report_event(
            "rolled-back",
            &format!("switched back to generation {number}, {old}"),
        );
        self.run_command(&old, true)
    }

    fn run_command(&self, path: &str, is_rollback: bool) -> anyhow::Result<()> {
        let Some(line) = &self.args.run else {
            return Ok(());
        };
        let mut command = Command::new("/bin/sh");
        command.args(["-c", line]);
        command.env("FLOE_PROFILE", self.profile.path());
        command.env("FLOE_PATH", path);
        command.env("FLOE_NAME", self.spec.to_string());
        command.env("FLOE_ROLLBACK", if is_rollback { "1" } else { "" });
        let status = self.run_to_end(&mut command)?;
        if !status.success() {
            bail!("the command of --run ended with {status}");
        }
        Ok(())
    }

    /// Runs a process. A signal to this process ends the other one, too.
    fn run_to_end(&self, command: &mut Command) -> anyhow::Result<ExitStatus> {
        let program = PathBuf::from(command.get_program());
        let failed = |error| anyhow!("cannot run {}: {error}", program.display());
        // The command is not made for as many files as floe opens.
        open_files::restore();
        // A signal of the terminal reaches it only through this process.
        command.stdin(Stdio::null()).process_group(0);
        let mut child = command.spawn().map_err(failed)?;
        let mut is_ended = false;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if self.is_stopped() && !is_ended {
                is_ended = true;
                let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
                // It may have ended in this moment.
                let _ = pid.map(|pid| kill_process_group(pid, Signal::TERM));
            }
            thread::sleep(CHILD_POLL);
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits, at most until a signal.
    fn wait(&self, time: Duration) {
        let began = Instant::now();
        while !self.is_stopped() && began.elapsed() < time {
            thread::sleep(CANCEL_POLL.min(time.saturating_sub(began.elapsed())));
        }
    }
}

/// Returns the arguments without those that only the follower understands.
fn arguments_of_copy(arguments: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut is_value = false;
    for argument in arguments {
        if std::mem::take(&mut is_value) {
            continue;
        }
        let text = argument.to_string_lossy();
        let name = text.split('=').next().unwrap_or_default();
        if OWN_OPTIONS.contains(&name) {
            is_value = !text.contains('=');
        } else {
            kept.push(argument);
        }
    }
    kept
}

/// The options with a value that the copy does not get.
const OWN_OPTIONS: [&str; 3] = ["--follow", "--every", "--run"];

/// How often the end of a process is checked for.
const CHILD_POLL: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_gets_the_other_arguments() {
        let line = "install --follow web --from u --every=60s --run sh --profile p -j 2";
        let kept = arguments_of_copy(line.split(' ').map(OsString::from));
        let expected = "install --from u --profile p -j 2".split(' ');
        assert_eq!(kept, expected.map(OsString::from).collect::<Vec<_>>());
    }
}
