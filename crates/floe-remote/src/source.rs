//! A remote store as a source.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;

use floe_format::{Compression, NarInfo, PathInfo, StoreDir, StorePath};
use floe_transfer::store_uri::{parse_bool, parse_number};
use floe_transfer::{
    Body, CachePolicy, Error, NarInfoCallback, NarInfoResult, NarRequest, NarStream, PathSpec,
    Source, SourceFacts, StoreServer, StoreVerifier,
};
use floe_wire::Protocol;
use floe_wire::worker::{Reply, Request};
use parking_lot::Mutex;

use crate::connection::{Connection, Open};
use crate::error::RemoteError;

/// A remote store that is open for reading.
pub(crate) struct RemoteSource {
    name: String,
    dir: StoreDir,
    protocol: Protocol,
    connection: Mutex<Arc<Connection>>,
    /// Opens another connection after the first one has ended.
    reopen: Open,
    /// How many more connections may be opened.
    reopens_left: AtomicUsize,
    options: RemoteSourceOptions,
    /// The metadata that came with closures, until it is queried.
    known: Mutex<HashMap<StorePath, PathInfo>>,
}

/// How a remote store is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RemoteSourceOptions {
    priority: i32,
    /// Whether its paths need no signature.
    pub(crate) is_trusted: bool,
}

impl RemoteSourceOptions {
    /// Sets the option that a parameter of a store URI names. Returns `false` if it names none.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match name {
            "priority" => self.priority = parse_number(name, value)?,
            "trusted" => self.is_trusted = parse_bool(name, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl RemoteSource {
    pub(crate) fn new(
        connection: Connection,
        reopen: Open,
        options: RemoteSourceOptions,
    ) -> RemoteSource {
        RemoteSource {
            name: connection.name().to_owned(),
            dir: connection.dir().clone(),
            protocol: connection.protocol(),
            connection: Mutex::new(Arc::new(connection)),
            reopen,
            reopens_left: AtomicUsize::new(REOPENS_MAX),
            options,
            known: Mutex::default(),
        }
    }

    /// Whether the other side is known to be floe.
    fn is_floe(&self) -> bool {
        let info = self.connection.lock().info();
        matches!(info, Some(Ok(info)) if info.is_floe())
    }

    /// Requests the closures of some paths from another floe, and keeps their metadata.
    fn fetch_closures(&self, paths: &[StorePath]) -> Result<Option<Vec<StorePath>>, Error> {
        let request = Request::QueryClosureInfos(paths.iter().cloned().collect());
        let mut replies = match self.connection().request_all([request]) {
            // A closure may be too large. The queries of single paths reach all of it.
            Err(RemoteError::Query { .. }) => return Ok(None),
            replies => replies?,
        };
        let Some(Reply::PathInfos(infos)) = replies.pop() else {
            return Err(RemoteError::unexpected_reply(&self.name).into());
        };
        let infos = infos.into_iter().map(|info| (info.path.clone(), info));
        let closure = closure_within(paths, infos.collect());
        let paths = closure.keys().cloned().collect();
        self.known.lock().extend(closure);
        Ok(Some(paths))
    }

    /// Returns the connection. Replaces one that has ended: a daemon ends it if it cannot read a
    /// path of which it has sent a part.
    fn connection(&self) -> Arc<Connection> {
        let mut connection = self.connection.lock();
        let order = Ordering::Relaxed;
        let take_one = |left: usize| left.checked_sub(1);
        if connection.has_ended_after_start()
            && self
                .reopens_left
                .fetch_update(order, order, take_one)
                .is_ok()
            && let Ok(new) = (self.reopen)()
        {
            *connection = Arc::new(new);
        }
        connection.clone()
    }
}

impl std::fmt::Debug for RemoteSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteSource")
            .field("name", &self.name)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Queries the metadata of a path. The path becomes a temporary root, so that it stays until its
/// NAR is read.
fn query_path_info(connection: &Connection, path: StorePath, reply: NarInfoCallback) {
    let name = connection.name().to_owned();
    let dir = connection.dir().clone();
    let mut sender = connection.lock();
    if connection.protocol() == Protocol::Worker {
        // The query that follows reports a failure of the connection.
        sender.send(&Request::AddTempRoot(path.clone()), Box::new(drop));
    }
    let request = Request::QueryPathInfo(path);
    sender.send(
        &request,
        Box::new(move |replied| {
            reply(match replied {
                Ok(Reply::PathInfo(None)) => Ok(None.into()),
                Ok(Reply::PathInfo(Some(info))) => narinfo(*info, &dir),
                Ok(_) => Err(RemoteError::unexpected_reply(&name).into()),
                Err(error) => Err(error.into()),
            });
        }),
    );
    sender.flush();
}

/// Returns the closure of some paths, as far as its metadata is here. A hostile daemon may send the
/// metadata of other paths, too.
fn closure_within(
    paths: &[StorePath],
    mut infos: HashMap<StorePath, PathInfo>,
) -> HashMap<StorePath, PathInfo> {
    let mut open = paths.to_vec();
    let mut closure = HashMap::new();
    while let Some(path) = open.pop() {
        if let Some(info) = infos.remove(&path) {
            open.extend(info.references.iter().cloned());
            closure.insert(path, info);
        }
    }
    closure
}

/// Returns the metadata of a path in the form of a narinfo: that of a NAR without compression.
fn narinfo(info: PathInfo, dir: &StoreDir) -> NarInfoResult {
    let info = PathInfo {
        registration_time: None,
        ultimate: false,
        ..info
    };
    let narinfo = NarInfo {
        url: dir.full_path(&info.path),
        compression: Compression::None,
        file_hash: None,
        // Zero means that the size is not known.
        file_size: Some(info.nar_size).filter(|size| *size > 0),
        info,
    };
    Ok(Some(narinfo).into())
}

impl Source for RemoteSource {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn store_dir(&self) -> &StoreDir {
        &self.dir
    }

    fn facts(&self) -> SourceFacts {
        SourceFacts {
            priority: self.options.priority,
            is_trusted: self.options.is_trusted,
            tells_closures_in_one_request: self.protocol == Protocol::Serve || self.is_floe(),
            has_nar_files: false,
            ..SourceFacts::default()
        }
    }

    fn query(&self, spec: &PathSpec, _: CachePolicy, reply: NarInfoCallback) {
        let part = match spec {
            PathSpec::Path(path) => {
                if let Some(info) = self.known.lock().remove(path) {
                    return reply(narinfo(info, &self.dir));
                }
                return query_path_info(&self.connection(), path.clone(), reply);
            }
            PathSpec::HashPart(part) => *part,
        };
        // The user named a hash part. The second request waits for the reply to the first one, and
        // the thread that reads replies must not send.
        let connection = self.connection();
        let name = self.name.clone();
        // If the thread does not start, its closure is gone.
        let reply = Arc::new(Mutex::new(Some(reply)));
        let reply_of_thread = reply.clone();
        let query = move || {
            let Some(reply) = reply_of_thread.lock().take() else {
                return;
            };
            let request = Request::QueryPathFromHashPart(part);
            let found = connection.request_all([request]);
            match found.map(|mut replies| replies.pop()) {
                Ok(Some(Reply::Path(Some(path)))) => query_path_info(&connection, path, reply),
                Ok(Some(Reply::Path(None))) => reply(Ok(None.into())),
                Ok(_) => reply(Err(RemoteError::unexpected_reply(&name).into())),
                Err(error) => reply(Err(error.into())),
            }
        };
        if let Err(error) = thread::Builder::new().spawn(query)
            && let Some(reply) = reply.lock().take()
        {
            reply(Err(Error::Thread(error)));
        }
    }

    fn open_nar(&self, narinfo: &NarInfo, request: NarRequest) -> Result<NarStream, Error> {
        let body = self.connection().read_nar(&narinfo.info, request.buffering);
        Ok(NarStream::Body(Body::Chunks(Box::new(body))))
    }

    /// A large NAR that waits for its worker would hold up all replies behind it.
    fn prefetch_nar(&self, _: &NarInfo, _: NarRequest) -> Option<Result<NarStream, Error>> {
        None
    }

    fn open_result(&self) -> Option<Result<(), Arc<Error>>> {
        let info = self.connection.lock().info()?;
        Some(info.map(|_| ()).map_err(|error| Arc::new(error.into())))
    }

    fn query_server(&self) -> Result<Option<StoreServer>, Error> {
        let info = self.connection().wait_until_open()?;
        Ok(Some(StoreServer {
            version: info.nix_version,
            trusts_client: info.trusts_client,
        }))
    }

    fn nar_url(&self, narinfo: &NarInfo) -> String {
        format!("{} in {}", narinfo.url, self.name())
    }

    fn query_all_valid_paths(&self) -> Result<Option<Vec<StorePath>>, Error> {
        if self.protocol == Protocol::Serve {
            return Ok(None);
        }
        match self
            .connection()
            .request_all([Request::QueryAllValidPaths])?
            .pop()
        {
            Some(Reply::Paths(paths)) => Ok(Some(paths.into_iter().collect())),
            _ => Err(RemoteError::unexpected_reply(&self.name).into()),
        }
    }

    /// The serve protocol and floe have a request for it.
    fn closures(&self, paths: &[StorePath]) -> Result<Option<Vec<StorePath>>, Error> {
        if self.is_floe() {
            return self.fetch_closures(paths);
        }
        if self.protocol == Protocol::Worker {
            return Ok(None);
        }
        let connection = self.connection();
        let request = Request::QueryClosure(paths.iter().cloned().collect());
        match connection.request_all([request]) {
            Ok(mut replies) => match replies.pop() {
                Some(Reply::Paths(paths)) => Ok(Some(paths.into_iter().collect())),
                _ => Err(RemoteError::unexpected_reply(&self.name).into()),
            },
            // nix-store ends if a path is not valid. The queries of single paths find out which.
            Err(RemoteError::Ended { .. }) if connection.has_ended_after_start() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn as_verifier(&self) -> Option<&dyn StoreVerifier> {
        Some(self)
    }

    fn abort(&self) {
        self.reopens_left.store(0, Ordering::Relaxed);
        self.connection.lock().abort();
    }
}

impl StoreVerifier for RemoteSource {
    fn verify_store(&self, repair: bool) -> Result<bool, Error> {
        let request = Request::VerifyStore {
            check_contents: true,
            repair,
        };
        match self.connection().request_all([request])?.pop() {
            Some(Reply::Verified { has_problems }) => Ok(has_problems),
            _ => Err(RemoteError::unexpected_reply(&self.name).into()),
        }
    }
}

/// Returns a function that sends one message, for [`Connection::open`].
pub(crate) fn notify(opened: &mpsc::Sender<()>) -> impl FnOnce() + Send + 'static {
    let opened = opened.clone();
    move || {
        // The receiver is gone when the copy no longer waits for the source.
        let _: Result<(), _> = opened.send(());
    }
}

/// How many connections are opened after the first one: enough for some paths that cannot be read.
const REOPENS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use floe_format::Hash;

    use super::*;

    #[test]
    fn closure_has_only_what_is_requested_and_refers() {
        let path = |name: &str| {
            StorePath::parse(&format!("7bw2d1cqdpnxi05lr3s6pmcgl5xazl2c-{name}")).unwrap()
        };
        let info = |name: &str, references: &[&str]| {
            let info = PathInfo {
                path: path(name),
                nar_hash: Hash::sha256([7; 32]),
                nar_size: 120,
                references: references.iter().map(|name| path(name)).collect(),
                deriver: None,
                signatures: [].into(),
                ca: None,
                registration_time: None,
                ultimate: false,
            };
            (info.path.clone(), info)
        };
        let sent = [
            info("root", &["a", "absent"]),
            info("a", &["a", "b"]),
            info("b", &[]),
            info("other", &["root"]),
        ];
        let closure = closure_within(&[path("root")], sent.into());
        let mut names: Vec<&str> = closure.keys().map(StorePath::name).collect();
        names.sort_unstable();
        assert_eq!(names, ["a", "b", "root"]);
    }
}
