//! A binary cache behind HTTP or HTTPS as a target.

use std::path::Path;

use floe_transfer::{Error, NamedObjects};

use super::reply_guard::ReplyGuard;
use super::storage::HttpStorage;
use super::upload::UploadedObject;
use crate::storage::{Durability, LenCallback, NewObject, ObjectPlan, WriteCallback, WriteStorage};

impl WriteStorage for HttpStorage {
    fn query_len(&self, name: &str, reply: LenCallback) {
        let (shared, name) = (self.shared.clone(), name.to_owned());
        let reply = ReplyGuard::new(reply);
        let request = async move { reply.send(shared.query_len(&name).await) };
        self.shared.spawn(request);
    }

    fn create(&self) -> Result<(), Error> {
        self.shared.enable_writes();
        Ok(())
    }

    fn put(&self, name: &str, contents: Vec<u8>, _: Durability, reply: WriteCallback) {
        let upload = self.server.put(name.to_owned(), contents);
        let reply = ReplyGuard::new(reply);
        self.shared.spawn(async move { reply.send(upload.await) });
    }

    fn begin_object(&self, plan: &ObjectPlan) -> Result<Box<dyn NewObject>, Error> {
        let object = UploadedObject::begin(&self.shared, self.server.clone(), plan)?;
        Ok(Box::new(object))
    }

    /// A server replies only when it has the object.
    fn sync(&self) -> Result<(), Error> {
        Ok(())
    }

    fn delete(&self, names: Vec<String>, reply: WriteCallback) {
        let (shared, deletion) = (self.shared.clone(), self.deletion.clone());
        let reply = ReplyGuard::new(reply);
        self.shared.spawn(async move {
            let rest = match deletion {
                Some(deletion) if names.len() > 1 => deletion.delete(names).await,
                _ => names,
            };
            reply.send(shared.delete_each(rest).await);
        });
    }

    fn deletion_batch(&self) -> usize {
        self.deletion.as_ref().map_or(1, |it| it.batch_len())
    }

    fn as_objects(&self) -> &dyn NamedObjects {
        self
    }

    fn nar_directory(&self) -> Option<&Path> {
        None
    }
}
