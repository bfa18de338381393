//! A disk that records every write and flush, and the images that a power cut may leave.
//!
//! The disk is a loop device over the only file of a FUSE file system. With direct I/O, a write to
//! the device is a write to that file, and a flush is an `fsync`.
//!
//! After a power cut, a disk has everything that it had confirmed by a flush. Of the later writes
//! it may have any part, block by block and in any order.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;

use crate::command::run;
use crate::poll::wait_at_most;
use crate::random::XorShift;
use crate::skip::{find_tool, skip};

/// A file system of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystemKind {
    /// ext4 with a journal, in its default mode.
    Ext4,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
}

/// A recording disk with a mounted file system.
pub struct RecordingDisk {
    mount: Option<Mount>,
    place: PathBuf,
    kind: FileSystemKind,
    device: String,
    /// The directory of the FUSE file system.
    files: PathBuf,
    session: Option<BackgroundSession>,
    recorder: Arc<Mutex<Recorder>>,
    len: u64,
}

/// A mounted file system. Dropping it unmounts it.
#[derive(Debug)]
pub struct Mount(PathBuf);

/// Creates a disk with an empty file system, mounted in a directory below `scratch`. If this
/// process may not do that, records a skip and returns `None`.
pub fn recording_disk(scratch: &Path, kind: FileSystemKind, len: u64) -> Option<RecordingDisk> {
    let (program, package, option) = match kind {
        FileSystemKind::Ext4 => ("mkfs.ext4", "e2fsprogs", "-q"),
        FileSystemKind::Xfs => ("mkfs.xfs", "xfsprogs", "-q"),
        FileSystemKind::Btrfs => ("mkfs.btrfs", "btrfs-progs", "-q"),
    };
    let mkfs = find_tool(program, package)?;
    let (files, place) = (scratch.join("fuse"), scratch.join("disk"));
    fs::create_dir_all(&files).unwrap();
    fs::create_dir_all(&place).unwrap();
    let recorder = Arc::new(Mutex::new(Recorder::default()));
    let disk = Disk {
        len,
        recorder: recorder.clone(),
    };
    let session = match fuser::spawn_mount(disk, &files, &Config::default()) {
        Ok(session) => session,
        Err(error) => {
            skip("recording disk", &format!("{error}; run the tests as root"));
            return None;
        }
    };
    let mut disk = RecordingDisk {
        mount: None,
        place,
        kind,
        device: attach(&files),
        files,
        session: Some(session),
        recorder,
        len,
    };
    run(Command::new(mkfs).args([option, &disk.device])).expect(0);
    disk.mount();
    Some(disk)
}

/// Makes a loop device of the only file of the FUSE file system. Returns the name of the device.
fn attach(files: &Path) -> String {
    let mut losetup = Command::new("losetup");
    losetup.args(["--find", "--show", "--direct-io=on"]);
    let device = run(losetup.arg(files.join("disk"))).expect(0).stdout;
    device.trim().to_owned()
}

impl RecordingDisk {
    /// Returns the directory in which the file system is mounted.
    pub fn mount_point(&self) -> &Path {
        self.mount.as_ref().unwrap().path()
    }

    /// Returns the number of operations so far.
    pub fn position(&self) -> usize {
        self.recorder.lock().operations.len()
    }

    /// Writes an image of the disk as a power cut after the first `position` operations may leave
    /// it. The seed chooses the blocks that were written since the last flush.
    pub fn write_image(&self, image: &Path, position: usize, seed: u64) {
        let blocks = self.recorder.lock().after_cut(position, seed);
        let file = File::create(image).unwrap();
        file.set_len(self.len).unwrap();
        for (number, block) in blocks {
            file.write_all_at(&block, number * BLOCK_LEN as u64)
                .unwrap();
        }
    }

    /// Cuts the power, and mounts what is left. No process may use the file system.
    pub fn cut_power(&mut self, seed: u64) {
        self.recorder.lock().is_off = true;
        self.detach();
        let mut recorder = self.recorder.lock();
        let position = recorder.operations.len();
        let blocks = recorder.after_cut(position, seed);
        *recorder = Recorder {
            start: blocks.clone(),
            blocks,
            ..Recorder::default()
        };
        drop(recorder);
        self.device = attach(&self.files);
        self.mount();
    }

    /// Unmounts the file system, whose images then may be mounted: all have the same identifier.
    pub fn unmount(&mut self) {
        drop(self.mount.take());
    }

    /// Unmounts and mounts the file system, as a restart of the system does.
    pub fn restart(&mut self) {
        drop(self.mount.take());
        self.mount();
    }

    fn mount(&mut self) {
        let options: &[&str] = match self.kind {
            FileSystemKind::Ext4 | FileSystemKind::Btrfs => &["-o", COMMIT_OFTEN],
            FileSystemKind::Xfs => &["-o", NO_UUID],
        };
        let mount = Mount::new(Path::new(&self.device), &self.place, options);
        self.mount = Some(mount);
    }

    /// Unmounts the file system and frees the loop device.
    fn detach(&mut self) {
        drop(self.mount.take());
        run(Command::new("losetup").args(["--detach", &self.device]));
        // The kernel detaches the device when its last user has closed it. A test that has failed
        // leaves its mounts behind if they are busy.
        let is_free = || !is_used(&self.files) || thread::panicking();
        wait_at_most(DETACH_TIMEOUT, "the disk is free", is_free);
    }
}

impl Drop for RecordingDisk {
    fn drop(&mut self) {
        self.detach();
        if let Some(session) = self.session.take() {
            let _: io::Result<()> = session.umount_and_join();
        }
    }
}

impl Mount {
    /// Mounts an image, which recovers its journal.
    pub fn of_image(image: &Path, place: &Path) -> Mount {
        fs::create_dir_all(place).unwrap();
        let mut magic = [0; 4];
        let mut file = fs::File::open(image).unwrap();
        file.read_exact(&mut magic).unwrap();
        match &magic {
            b"XFSB" => Mount::new(image, place, &["-o", "loop", "-o", NO_UUID]),
            _ => Mount::new(image, place, &["-o", "loop"]),
        }
    }

    fn new(device: &Path, place: &Path, options: &[&str]) -> Mount {
        let mut mount = Command::new("mount");
        run(mount.args(options).arg(device).arg(place)).expect(0);
        Mount(place.to_owned())
    }

    /// Returns the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let ran = run(Command::new("umount").arg(&self.0));
        if !thread::panicking() {
            ran.expect(0);
        }
        // btrfs remembers its devices. Another image with the same identifier would be refused.
        let mut forget = Command::new("btrfs");
        let _: io::Result<Output> = forget.args(["device", "scan", "--forget"]).output();
    }
}

/// Lets XFS mount an image beside another one with the same identifier. A mount namespace of
/// another test keeps an image mounted that is unmounted here.
const NO_UUID: &str = "nouuid";

/// A command of another test in its own mount namespace keeps a copy of the mount until it ends.
const DETACH_TIMEOUT: Duration = Duration::from_secs(300);

/// Whether a loop device uses the disk in this directory.
fn is_used(files: &Path) -> bool {
    let mut losetup = Command::new("losetup");
    let list = run(losetup.args(["--list", "--noheadings", "--output", "BACK-FILE"]));
    list.stdout.contains(&files.display().to_string())
}

enum Operation {
    Write { offset: u64, data: Vec<u8> },
    Flush,
}

/// The contents of a disk by block.
type Blocks = HashMap<u64, [u8; BLOCK_LEN]>;

/// The contents of the disk, and all operations since the last power cut.
#[derive(Default)]
struct Recorder {
    /// The contents after the last power cut.
    start: Blocks,
    blocks: Blocks,
    operations: Vec<Operation>,
    /// Whether the power is off. Then writes have no effect.
    is_off: bool,
}

impl Recorder {
    /// Returns the contents as a power cut after the first `position` operations may leave them.
    fn after_cut(&self, position: usize, seed: u64) -> Blocks {
        let operations = &self.operations[..position];
        let is_flush = |operation: &Operation| matches!(operation, Operation::Flush);
        let flushed = operations.iter().rposition(is_flush).unwrap_or(0);
        let mut random = XorShift(seed | 1);
        let mut blocks = self.start.clone();
        for (index, operation) in operations.iter().enumerate() {
            let Operation::Write { offset, data } = operation else {
                continue;
            };
            for (place, data) in (*offset..).step_by(BLOCK_LEN).zip(data.chunks(BLOCK_LEN)) {
                if index < flushed || random.below(2) == 0 {
                    write_blocks(&mut blocks, place, data);
                }
            }
        }
        blocks
    }

    fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut data = Vec::with_capacity(len);
        while data.len() < len {
            let (block, start) = position(offset + data.len() as u64);
            let end = BLOCK_LEN.min(start + len - data.len());
            match self.blocks.get(&block) {
                Some(block) => data.extend_from_slice(&block[start..end]),
                None => data.resize(data.len() + end - start, 0),
            }
        }
        data
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        if self.is_off {
            return;
        }
        write_blocks(&mut self.blocks, offset, data);
        let data = data.to_vec();
        self.operations.push(Operation::Write { offset, data });
    }
}

fn write_blocks(blocks: &mut Blocks, offset: u64, data: &[u8]) {
    let mut written = 0;
    while written < data.len() {
        let (block, start) = position(offset + written as u64);
        let len = (BLOCK_LEN - start).min(data.len() - written);
        let block = blocks.entry(block).or_insert([0; BLOCK_LEN]);
        block[start..start + len].copy_from_slice(&data[written..written + len]);
        written += len;
    }
}

/// Returns the block of an offset, and the position in the block.
fn position(offset: u64) -> (u64, usize) {
    let len = BLOCK_LEN as u64;
    (offset / len, (offset % len) as usize)
}

/// The file system with one file.
struct Disk {
    len: u64,
    recorder: Arc<Mutex<Recorder>>,
}

impl Disk {
    fn attributes(&self, inode: INodeNo) -> FileAttr {
        let (kind, size) = match inode {
            INodeNo::ROOT => (FileType::Directory, 0),
            _ => (FileType::RegularFile, self.len),
        };
        FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm: 0o755,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: BLOCK_LEN as u32,
            flags: 0,
        }
    }
}

impl Filesystem for Disk {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == "disk" {
            reply.entry(&TTL, &self.attributes(INodeNo(2)), Generation(0))
        } else {
            reply.error(Errno::ENOENT)
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&TTL, &self.attributes(inode));
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        reply.attr(&TTL, &self.attributes(inode));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let len = self.len.saturating_sub(offset).min(u64::from(size));
        reply.data(&self.recorder.lock().read(offset, len as usize));
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.recorder.lock().write(offset, data);
        reply.written(data.len() as u32);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.recorder.lock().operations.push(Operation::Flush);
        reply.ok();
    }
}

/// A disk writes blocks of this length whole or not at all.
const BLOCK_LEN: usize = 4096;

/// Metadata reaches the disk after a second. Contents may wait for half a minute: that is how files
/// become empty.
const COMMIT_OFTEN: &str = "commit=1";

/// The attributes never change.
const TTL: Duration = Duration::from_secs(3600);
