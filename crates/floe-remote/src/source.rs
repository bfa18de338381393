//! A remote store as a source.

use std::sync::{Arc, mpsc};

use floe_format::{Compression, NarInfo, PathInfo, StoreDir, StorePath};
use floe_transfer::{
    Body, CachePolicy, Error, NarInfoCallback, NarInfoResult, NarRequest, NarStream, PathSpec,
    Source,
};
use floe_wire::worker::{Reply, Request};

use crate::connection::Connection;
use crate::error::RemoteError;

/// A remote store that is open for reading.
#[derive(Debug)]
pub(crate) struct RemoteSource {
    connection: Arc<Connection>,
    priority: i32,
    is_trusted: bool,
}

impl RemoteSource {
    pub(crate) fn new(connection: Connection, priority: i32, is_trusted: bool) -> RemoteSource {
        RemoteSource {
            connection: Arc::new(connection),
            priority,
            is_trusted,
        }
    }
}

/// Queries the metadata of a path.
fn query_path_info(connection: &Connection, path: StorePath, reply: NarInfoCallback) {
    let name = connection.name().to_owned();
    let dir = connection.dir().clone();
    let mut sender = connection.lock();
    let request = Request::QueryPathInfo(path);
    sender.send(
        &request,
        Box::new(move |replied| {
            reply(match replied {
                Ok(Reply::PathInfo(None)) => Ok(None.into()),
                Ok(Reply::PathInfo(Some(info))) => narinfo(*info, &dir),
                Ok(_) => Err(unexpected(name)),
                Err(error) => Err(error.into()),
            });
        }),
    );
    sender.flush();
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
        file_size: Some(info.nar_size),
        info,
    };
    Ok(Some(narinfo).into())
}

fn unexpected(uri: String) -> Error {
    RemoteError::Query {
        uri,
        reason: "the reply is of another kind than the request".into(),
    }
    .into()
}

impl Source for RemoteSource {
    fn name(&self) -> String {
        self.connection.name().to_owned()
    }

    fn store_dir(&self) -> &StoreDir {
        self.connection.dir()
    }

    fn query(&self, spec: &PathSpec, _: CachePolicy, reply: NarInfoCallback) {
        let part = match spec {
            PathSpec::Path(path) => {
                return query_path_info(&self.connection, path.clone(), reply);
            }
            PathSpec::HashPart(part) => *part,
        };
        // The user named a hash part. The second request waits for the reply to the first one, and
        // the thread that reads replies must not send.
        let connection = self.connection.clone();
        let query = move || {
            let request = Request::QueryPathFromHashPart(part);
            let found = connection.request_all([request]);
            match found.map(|mut replies| replies.pop()) {
                Ok(Some(Reply::Path(Some(path)))) => query_path_info(&connection, path, reply),
                Ok(Some(Reply::Path(None))) => reply(Ok(None.into())),
                Ok(_) => reply(Err(unexpected(connection.name().to_owned()))),
                Err(error) => reply(Err(error.into())),
            }
        };
        std::thread::spawn(query);
    }

    fn open_nar(&self, narinfo: &NarInfo, request: NarRequest) -> Result<NarStream, Error> {
        let body = self
            .connection
            .read_nar(&narinfo.info.path, request.buffering);
        Ok(NarStream::Body(Body::Chunks(Box::new(body))))
    }

    /// A large NAR that waits for its worker would hold up all replies behind it.
    fn prefetch_nar(&self, _: &NarInfo, _: NarRequest) -> Option<Result<NarStream, Error>> {
        None
    }

    fn priority(&self) -> i32 {
        self.priority
    }

    fn is_trusted(&self) -> bool {
        self.is_trusted
    }

    fn open_result(&self) -> Option<Result<(), Arc<Error>>> {
        let info = self.connection.info()?;
        Some(info.map(|_| ()).map_err(|error| Arc::new(error.into())))
    }

    fn nar_url(&self, narinfo: &NarInfo) -> String {
        format!("{} in {}", narinfo.url, self.name())
    }

    fn query_all_valid_paths(&self) -> Result<Option<Vec<StorePath>>, Error> {
        match self
            .connection
            .request_all([Request::QueryAllValidPaths])?
            .pop()
        {
            Some(Reply::Paths(paths)) => Ok(Some(paths.into_iter().collect())),
            _ => Err(unexpected(self.name())),
        }
    }

    fn has_nar_files(&self) -> bool {
        false
    }

    fn abort(&self) {
        self.connection.abort();
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
