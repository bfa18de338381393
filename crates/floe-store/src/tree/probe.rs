//! Finds out whether a file system can hold a store.
//!
//! The only sure way is to try it: the kinds of file systems, their versions, their mount options
//! and the systems behind network mounts differ in what they keep. All files of a probe are in one
//! directory, which is removed at the end.

use std::ffi::CString;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, RenameFlags, StatVfsMountFlags, Timespec, Timestamps,
    UTIME_OMIT, fcntl_lock, flock, lgetxattr, renameat_with, statvfs, utimensat,
};
use rustix::io::Errno;

use super::remove_tree;
use crate::disk::{WrittenFile, list_directory};
use crate::error::{IoContext as _, StoreError, is_out_of_space};

/// Something that a store needs of its file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ability {
    /// Locks of whole files that exclude other descriptors (`flock`), which Nix uses.
    Locks,
    /// Locks of ranges (`fcntl`), which SQLite uses.
    RangeLocks,
    /// A rename that exchanges two names.
    ExchangingRename,
    /// A rename that replaces nothing.
    ExclusiveRename,
    /// Two names of one file.
    HardLinks,
    /// Symbolic links.
    Symlinks,
    /// Modes of files as they are set.
    Modes,
    /// Times of modification as they are set.
    Times,
    /// Names that differ only in upper and lower case.
    CaseSensitiveNames,
    /// Names that look equal and have other bytes.
    ExactNames,
    /// Names of 255 bytes.
    LongNames,
    /// Files without access control lists that their directory gives them.
    NoInheritedAcls,
    /// Programs that run.
    Execution,
    /// Times of new files near the clock of this machine.
    Clock,
}

/// The abilities of a file system, each with the reason if it lacks it.
pub type Abilities = Vec<(Ability, Result<(), String>)>;

/// Tries each ability in a directory.
///
/// Errors: no file can be created there, or the disk is full.
pub fn probe_file_system(directory: &Path) -> Result<Abilities, StoreError> {
    let probe = Probe::new(directory)?;
    let tries: [(Ability, Try); 14] = [
        (Ability::Locks, Probe::try_locks),
        (Ability::RangeLocks, Probe::try_range_locks),
        (Ability::ExchangingRename, Probe::try_exchange),
        (Ability::ExclusiveRename, Probe::try_exclusive_rename),
        (Ability::HardLinks, Probe::try_hard_links),
        (Ability::Symlinks, Probe::try_symlinks),
        (Ability::Modes, Probe::try_modes),
        (Ability::Times, Probe::try_times),
        (Ability::CaseSensitiveNames, Probe::try_case),
        (Ability::ExactNames, Probe::try_exact_names),
        (Ability::LongNames, Probe::try_long_names),
        (Ability::NoInheritedAcls, Probe::try_acls),
        (Ability::Execution, Probe::try_execution),
        (Ability::Clock, Probe::try_clock),
    ];
    let mut abilities = Vec::new();
    for (ability, run) in tries {
        let tried = match run(&probe) {
            // Every other one would seem to be lacking too.
            Err(error) if is_out_of_space(&error) => {
                return Err(error).io_context("write to", directory);
            }
            tried => tried.map_err(|error| error.to_string()),
        };
        abilities.push((ability, tried));
    }
    Ok(abilities)
}

/// Tries one ability.
type Try = fn(&Probe) -> io::Result<()>;

/// The directory of a probe. Dropping it removes the directory.
struct Probe {
    place: PathBuf,
    /// The directory that has it, and its time before.
    parent: (PathBuf, SystemTime),
}

impl Drop for Probe {
    fn drop(&mut self) {
        // Nothing else can be done; the next probe removes the directory.
        let _: Result<(), StoreError> = remove_tree(&self.place);
        let (parent, time) = &self.parent;
        if let Ok(time) = time.duration_since(UNIX_EPOCH) {
            let seconds = Timespec {
                tv_sec: time.as_secs().cast_signed(),
                tv_nsec: time.subsec_nanos().into(),
            };
            let times = Timestamps {
                last_access: Timespec {
                    tv_sec: 0,
                    tv_nsec: UTIME_OMIT,
                },
                last_modification: seconds,
            };
            let _: rustix::io::Result<()> = utimensat(CWD, parent, &times, AtFlags::empty());
        }
    }
}

impl Probe {
    fn new(directory: &Path) -> Result<Probe, StoreError> {
        let time = fs::metadata(directory).and_then(|found| found.modified());
        let time = time.io_context("examine", directory)?;
        remove_probes_of_killed(directory)?;
        let place = directory.join(format!("{PREFIX}{}", std::process::id()));
        let created = DirBuilder::new().mode(0o700).create(&place);
        created.io_context("create", &place)?;
        Ok(Probe {
            place,
            parent: (directory.to_owned(), time),
        })
    }

    fn create(&self, name: &str) -> io::Result<PathBuf> {
        let place = self.place.join(name);
        let new = WrittenFile::create(&place, Mode::from_raw_mode(0o644))?;
        new.complete(|new| new.write_all(name.as_bytes()))?;
        Ok(place)
    }

    fn try_locks(&self) -> io::Result<()> {
        let place = self.create("locked")?;
        let (holder, other) = (File::open(&place)?, File::open(&place)?);
        let operation = FlockOperation::NonBlockingLockExclusive;
        flock(&holder, operation)?;
        match flock(&other, operation) {
            Err(Errno::WOULDBLOCK) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(()) => Err(io::Error::other(
                "two locks of one file do not exclude each other",
            )),
        }
    }

    fn try_range_locks(&self) -> io::Result<()> {
        let new = WrittenFile::create(&self.place.join("ranges"), Mode::from_raw_mode(0o644))?;
        let operation = FlockOperation::NonBlockingLockExclusive;
        new.complete(|new| Ok(fcntl_lock(new.as_file(), operation)?))
    }

    fn try_exchange(&self) -> io::Result<()> {
        let (one, other) = (self.create("one")?, self.create("other")?);
        renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE)?;
        same(
            &*fs::read(&one)?,
            &b"other"[..],
            "the contents of an exchanged file",
        )
    }

    fn try_exclusive_rename(&self) -> io::Result<()> {
        let (new, old) = (self.create("new")?, self.create("old")?);
        match renameat_with(CWD, &new, CWD, &old, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => Ok(()),
            Err(error) => Err(error.into()),
            Ok(()) => Err(io::Error::other("a rename has replaced a file")),
        }
    }

    fn try_hard_links(&self) -> io::Result<()> {
        let file = self.create("linked")?;
        let link = self.place.join("link");
        fs::hard_link(&file, &link)?;
        let (file, link) = (file.metadata()?, link.metadata()?);
        same(&file.ino(), &link.ino(), "the number of a linked file")?;
        same(&file.nlink(), &2, "the number of its links")
    }

    fn try_symlinks(&self) -> io::Result<()> {
        let link = self.place.join("symlink");
        symlink("../target", &link)?;
        same(
            &fs::read_link(link)?,
            &PathBuf::from("../target"),
            "a target",
        )
    }

    fn try_modes(&self) -> io::Result<()> {
        let file = self.create("mode")?;
        for mode in [0o444, 0o555] {
            fs::set_permissions(&file, Permissions::from_mode(mode))?;
            let found = file.metadata()?.mode() & 0o7777;
            if found != mode {
                let reason = format!("a file of mode {mode:o} has mode {found:o}");
                return Err(io::Error::other(reason));
            }
        }
        Ok(())
    }

    fn try_times(&self) -> io::Result<()> {
        let file = self.create("time")?;
        let second = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        let times = Timestamps {
            last_access: second,
            last_modification: second,
        };
        utimensat(CWD, &file, &times, AtFlags::SYMLINK_NOFOLLOW)?;
        let found = file.metadata()?;
        same(&(found.mtime(), found.mtime_nsec()), &(1, 0), "a time")
    }

    fn try_case(&self) -> io::Result<()> {
        self.create("upper-CASE")?;
        self.refuse_name("UPPER-case", "upper and lower case are the same there")
    }

    fn try_exact_names(&self) -> io::Result<()> {
        self.create("caf\u{e9}")?;
        let reason = "letters with accents are the same there in each of their spellings";
        self.refuse_name("cafe\u{301}", reason)
    }

    /// Fails if a name exists.
    fn refuse_name(&self, name: &str, reason: &str) -> io::Result<()> {
        match self.place.join(name).symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(io::Error::other(reason)),
        }
    }

    fn try_long_names(&self) -> io::Result<()> {
        self.create(&"n".repeat(NAME_LEN_MAX)).map(drop)
    }

    fn try_acls(&self) -> io::Result<()> {
        let file = self.create("acl")?;
        let name = CString::new("system.posix_acl_access").unwrap_or_default();
        match lgetxattr(&file, &name, &mut [0; 0][..]) {
            Ok(_) => Err(io::Error::other("new files get an access control list")),
            // The file has none, or the file system knows none.
            Err(Errno::NODATA | Errno::NOTSUP) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn try_execution(&self) -> io::Result<()> {
        if statvfs(&self.place)?
            .f_flag
            .contains(StatVfsMountFlags::NOEXEC)
        {
            return Err(io::Error::other("it is mounted with the option noexec"));
        }
        Ok(())
    }

    fn try_clock(&self) -> io::Result<()> {
        let created = self.create("clock")?.metadata()?.modified()?;
        let now = SystemTime::now();
        let difference = now
            .duration_since(created)
            .unwrap_or_else(|error| error.duration());
        if difference > CLOCK_DIFFERENCE_MAX {
            let seconds = difference.as_secs();
            let reason = format!("the time of a new file differs from the clock by {seconds} s");
            return Err(io::Error::other(reason));
        }
        Ok(())
    }
}

/// Removes the directories of probes whose processes are gone.
fn remove_probes_of_killed(directory: &Path) -> Result<(), StoreError> {
    let entries = list_directory(directory).io_context("list", directory)?;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy();
        let process = name
            .strip_prefix(PREFIX)
            .and_then(|it| it.parse::<u32>().ok());
        let is_gone = |process| !Path::new(&format!("/proc/{process}")).exists();
        if process.is_some_and(is_gone) {
            remove_tree(entry.path())?;
        }
    }
    Ok(())
}

/// The names of the directories of probes begin with this text, and end with the process.
const PREFIX: &str = ".floe-probe-";

fn same<T: PartialEq + ?Sized>(found: &T, expected: &T, what: &str) -> io::Result<()> {
    if found == expected {
        return Ok(());
    }
    Err(io::Error::other(format!("{what} is not the expected one")))
}

/// The longest name of a file on Linux, in bytes.
const NAME_LEN_MAX: usize = 255;

/// How far the clock of a file server may be off.
const CLOCK_DIFFERENCE_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_system_of_the_tests_can_hold_a_store() {
        let directory = tempfile::tempdir().unwrap();
        let abilities = probe_file_system(directory.path()).unwrap();
        for (ability, tried) in &abilities {
            assert_eq!(tried, &Ok(()), "{ability:?}");
        }
        assert_eq!(abilities.len(), 14);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        // No process has this number.
        let old = directory.path().join(".floe-probe-4294967295");
        fs::create_dir_all(old.join("x")).unwrap();
        let time = fs::metadata(directory.path()).unwrap().modified().unwrap();
        probe_file_system(directory.path()).unwrap();
        assert!(!old.exists());
        let found = fs::metadata(directory.path()).unwrap().modified().unwrap();
        assert_eq!(found, time);
    }

    #[test]
    fn absent_directory_is_an_error() {
        assert!(probe_file_system(Path::new("/nonexistent/store")).is_err());
    }
}
