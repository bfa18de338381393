//! `floe run` and `floe shell`: start programs of store paths, after installing them if necessary.
//!
//! A store below a root directory is mounted at the store directory that its paths name, in a
//! namespace of the program alone. floe replaces itself by the program, so terminal, signals and
//! exit code are those of the program.

pub(crate) mod args;
mod clone_mount;
mod main_program;
mod mount_store;
pub(crate) mod page;
mod protect;
mod root_tree;
mod user_namespace;

use std::env;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{anyhow, bail};
use floe_config::StoreAccess;
use floe_copy::RequestedPaths;
use floe_format::StorePath;
use floe_store::{LockWait, StoreLayout};
use floe_transfer::{PathSpec, StoreConfig};

use crate::copying::{CopyAction, Copying, Follow};
use crate::display::warn;
use crate::exit::UsageError;
use crate::open_files;
use crate::options::{self, Settings};
use crate::package_names::{First, PackageNames, Resolution};
use crate::store_choice::why_not_local;
use args::{ProgramArgs, RunArgs, ShellArgs};
use main_program::{file_in, main_program};
use mount_store::{mount_store, warn_of_hidden_files};
use protect::{Protected, protect};

pub(crate) fn run(args: &RunArgs) -> anyhow::Result<()> {
    let installed = Installed::new(&args.program, std::slice::from_ref(&args.path))?;
    let layout = &installed.layout;
    let [path] = &*installed.paths else {
        bail!(UsageError(format!(
            "cannot run {:?}: it names no path; give a store path, or a link such as ./result",
            args.path
        )));
    };
    // The text may name the program itself.
    let file = installed
        .texts
        .first()
        .and_then(|text| file_in(layout, path, text));
    let program = match (&args.name, file) {
        (None, Some(file)) => file,
        (name, _) => main_program(layout, path, name.as_deref())?,
    };
    let mut command = Command::new(&program);
    command.args(&args.arguments);
    installed.exec(command)
}

pub(crate) fn shell(args: &ShellArgs) -> anyhow::Result<()> {
    let installed = Installed::new(&args.program, &args.paths)?;
    installed.check_programs()?;
    let directory = |path| PathBuf::from(installed.layout.store_dir.full_path(path)).join("bin");
    let directories = installed.paths.iter().map(directory);
    let before = env::var_os("PATH").filter(|path| !path.is_empty());
    // Without PATH, the system would search these.
    let before = before.unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    let all: Vec<PathBuf> = directories.chain(env::split_paths(&before)).collect();
    let path = env::join_paths(all)?;
    // A store below another directory hides that of this machine, with its shells.
    let store_dir = installed.layout.store_dir.as_str();
    let is_hidden = |shell: &OsString| {
        installed.layout.place_elsewhere().is_some() && Path::new(shell).starts_with(store_dir)
    };
    let shell = env::var_os("SHELL").filter(|shell| !shell.is_empty() && !is_hidden(shell));
    let default = vec![shell.unwrap_or_else(|| OsString::from("/bin/sh"))];
    let words = if args.command.is_empty() {
        &default
    } else {
        &args.command
    };
    let [program, arguments @ ..] = &**words else {
        bail!(UsageError(
            "cannot start a shell: the command is empty".into()
        ));
    };
    let mut command = Command::new(program);
    command.args(arguments).env("PATH", path);
    installed.exec(command)
}

/// Enters the namespaces in which stores are mounted.
///
/// Errors: the system refuses them.
pub(crate) fn enter_namespace() -> anyhow::Result<()> {
    user_namespace::enter()
}

/// Paths that are valid and protected.
struct Installed {
    layout: StoreLayout,
    /// The arguments, with links replaced by the files in the store directory.
    texts: Vec<String>,
    paths: Vec<StorePath>,
    protected: Protected,
}

impl Installed {
    /// Finds the paths, and installs those that are not valid.
    fn new(args: &ProgramArgs, paths: &[String]) -> anyhow::Result<Installed> {
        let settings = Settings::load(args.options(), None)?;
        let target = settings.store(args.local.choice(), StoreAccess::Read)?;
        let Some(layout) = target.layout().cloned() else {
            bail!(UsageError(format!(
                "cannot run programs of {target}: {}",
                why_not_local(&*target)
            )));
        };
        let options = (Some(&layout.store_dir), args.refresh);
        let mut packages = PackageNames::new(&settings, &args.names, options)?;
        packages.set_keys(settings.trusted_keys(&args.transfer().trust)?);
        if !args.from.is_empty() {
            let request = settings.copy_from(&args.from, target.clone(), RequestedPaths::All)?;
            packages.set_caches(&request.sources);
        }
        let found = match installed_before() {
            Some(texts) => texts.into(),
            None => find_paths((&mut packages, args), paths, (&*target, &layout))?,
        };
        let texts = found.texts.iter();
        let specs = texts.map(|text| PathSpec::parse(text, &layout.store_dir));
        let specs = specs.collect::<Result<Vec<_>, _>>()?;
        let lock_wait: LockWait = options::lock_wait(Default::default());
        if let Some((paths, protected)) = protect(&layout, &specs, &lock_wait)? {
            if packages.has_used_network() {
                return start_again(&found.texts);
            }
            return Ok(Installed {
                layout,
                texts: found.texts,
                paths,
                protected,
            });
        }
        if installed_before().is_some() {
            bail!(
                "cannot run {}: a collection deleted it after it was installed; run floe again",
                found.texts.join(" ")
            );
        }
        let transfer = args.transfer();
        let installed = packages.copy_newest(found, |found, earlier| {
            let paths = RequestedPaths::Named(found.texts.clone());
            let request = settings.copy_from(&args.from, target.clone(), paths)?;
            let command = Copying {
                action: CopyAction::Install,
                settings: &settings,
                args: &transfer,
                follow: &Follow::No,
                names: &found.names,
                earlier,
                is_result: false,
            };
            command.run(request)
        })?;
        start_again(&installed.texts)
    }

    /// Warns of paths without programs. With such a path, the shell finds the programs of the host.
    ///
    /// Errors: none of the paths has programs.
    fn check_programs(&self) -> anyhow::Result<()> {
        let has_programs = |path: &&StorePath| self.layout.real_path(path).join("bin").is_dir();
        let without = self.paths.iter().filter(|path| !has_programs(path));
        let without: Vec<String> = without
            .map(|path| self.layout.store_dir.full_path(path))
            .collect();
        if without.len() == self.paths.len() {
            bail!(
                "cannot use programs of {}: it has no directory bin; give the path of a package \
                 with programs",
                without.join(" and ")
            );
        }
        for path in without {
            warn(format_args!(
                "{path} has no directory bin, so the shell finds no program of it"
            ));
        }
        Ok(())
    }

    /// Replaces this process by the program.
    fn exec(self, mut command: Command) -> anyhow::Result<()> {
        command.env_remove(INSTALLED);
        command.env(PATHS, self.marker());
        if let Some(place) = self.layout.place_elsewhere() {
            let directory = env::current_dir().ok();
            warn_of_hidden_files(&self.layout, directory.as_deref());
            mount_store(place, Path::new(self.layout.store_dir.as_str()))?;
            // The mounted store may hide the working directory. In another one, the program could
            // do harm.
            if let Some(directory) = directory {
                env::set_current_dir(&directory).map_err(|error| {
                    anyhow!(
                        "cannot run a program in {}: the mounted store hides this directory \
                         ({error}); change to another one",
                        directory.display()
                    )
                })?;
            }
        }
        let _root = self.protected.inherit()?;
        let program = command.get_program().to_owned();
        let error = command.exec();
        bail!(cannot_run(&program, &error))
    }

    /// Returns the paths as a text for the environment, where collectors find them: a program
    /// may close the file of its temporary root. The paths of a `floe run` further out stay,
    /// because the program may use those as well.
    fn marker(&self) -> OsString {
        let mut marker = env::var_os(PATHS).unwrap_or_default();
        for path in &self.paths {
            let path = self.layout.store_dir.full_path(path);
            if marker.to_string_lossy().contains(&path) {
                continue;
            }
            if !marker.is_empty() {
                marker.push(":");
            }
            marker.push(path);
        }
        marker
    }
}

/// Replaces this process by a new one: an install has started threads, and only a process with one
/// thread may enter a user namespace.
fn start_again<T>(texts: &[String]) -> anyhow::Result<T> {
    open_files::restore();
    let mut arguments = env::args_os();
    let mut command = Command::new("/proc/self/exe");
    command.arg0(arguments.next().unwrap_or_default());
    let error = command
        .args(arguments)
        .env(INSTALLED, installed(texts))
        .exec();
    bail!(cannot_run(OsStr::new("floe"), &error))
}

fn cannot_run(program: &OsStr, error: &io::Error) -> String {
    let shown = Path::new(program).display();
    let is_name = !program.as_encoded_bytes().contains(&b'/');
    let fix = match error.kind() {
        io::ErrorKind::NotFound if is_name => {
            "; no directory of PATH and no path of the command line has it"
        }
        io::ErrorKind::NotFound => {
            "; the file or the interpreter that its first line names is missing"
        }
        io::ErrorKind::PermissionDenied => "; the file must be executable",
        _ => "",
    };
    format!("cannot run {shown}: {error}{fix}")
}

/// Returns the text that tells the new program which paths were installed: the number of this
/// process, which a new program does not change, and the paths.
fn installed(texts: &[String]) -> String {
    format!("{}\n{}", std::process::id(), texts.join("\n"))
}

/// Returns the paths that this process has installed before it started again.
fn installed_before() -> Option<Vec<String>> {
    let value = env::var(INSTALLED).ok()?;
    let (process, texts) = value.split_once('\n')?;
    let is_own = process == std::process::id().to_string();
    is_own.then(|| texts.split('\n').map(str::to_owned).collect())
}

/// Returns the paths that the arguments mean. A name means the path that was looked up before, if
/// it is valid, else a valid path of this name, else the path that a name source has.
fn find_paths(
    (packages, args): (&mut PackageNames<'_>, &ProgramArgs),
    arguments: &[String],
    (target, layout): (&dyn StoreConfig, &StoreLayout),
) -> anyhow::Result<Resolution> {
    let texts = packages.settings.follow_links(arguments, &[target])?;
    if args.refresh {
        return packages.find((arguments, texts), (layout, First::Sources));
    }
    let texts = packages.find_remembered(layout, texts)?;
    packages.find((arguments, texts), (layout, First::Store))
}

/// Tells the new process that the paths were installed a moment ago.
const INSTALLED: &str = "FLOE_RUN_INSTALLED";

/// Names the paths to collectors.
const PATHS: &str = "FLOE_RUN_PATHS";
