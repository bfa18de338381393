//! NARs that go out compressed.

use std::sync::Arc;

use floe_store::StoreError;

use super::nar::{NAR_TYPE, cache_control};
use crate::answer::{Answer, Content, has};
use crate::body::{Body, Piece};
use crate::config::Compress;
use crate::context::{Context, Question};
use crate::identity::identity;
use crate::lookup::Entry;
use crate::nar_reader::NarReader;
use crate::route::HashPart;
use crate::side_cache::LEVEL;
use crate::text::Text;

/// The answer to a client that takes zstd and wants all of a NAR, if it is to be encoded.
pub(crate) fn answer(
    context: &Context,
    entry: &Entry,
    names_hash: bool,
    question: &Question,
) -> Result<Option<Answer>, StoreError> {
    let size = entry.info.nar_size;
    if size < COMPRESSED_MIN {
        return Ok(None);
    }
    let etag = format!("\"{}-zstd\"", entry.nar_hash);
    let fields = format!(
        "{NAR_TYPE}{}Content-Encoding: zstd\r\nVary: Accept-Encoding\r\nETag: {etag}\r\n",
        cache_control(names_hash)
    );
    let path = context.layout.real_path(&entry.info.path);
    // A path of which the files are gone is not served from a copy either.
    let identity = identity(&path)?;
    if has(question.if_none_match.as_deref(), &etag) {
        return Ok(Some(Answer::not_modified(fields)));
    }
    if let Some(copies) = &context.copies {
        if let Some((file, len)) = copies.ready(&entry.nar_hash) {
            let piece = Piece::File {
                file: Arc::new(file.into()),
                offset: 0,
                end: len,
            };
            return Ok(Some(body(fields, Some(len), piece)));
        }
        copies.wish(entry, path.clone(), identity);
    }
    if context.compress != Compress::Always {
        return Ok(None);
    }
    if question.head_only {
        return Ok(Some(Answer {
            status: 200,
            fields: fields.into(),
            length: None,
            content: Content::Text(Text::Static("")),
        }));
    }
    let Some(hash) = HashPart::parse(entry.info.path.hash_part()) else {
        return Ok(None);
    };
    let plan = context.nars.plan(hash, &path)?;
    if plan.nar_size() != size {
        return Ok(None);
    }
    let encoder = NarReader::new(plan, &path)
        .map(|reader| zstd::stream::read::Encoder::new(reader, LEVEL))?
        .map_err(|source| StoreError::Io {
            action: "compressing",
            path: path.clone(),
            source,
        })?;
    let piece = Piece::Stream {
        reader: Box::new(encoder),
        in_chunks: !question.is_old,
    };
    Ok(Some(body(fields, None, piece)))
}

fn body(fields: String, length: Option<u64>, piece: Piece) -> Answer {
    Answer {
        status: 200,
        fields: fields.into(),
        length,
        content: Content::Body(Box::new(Body::of([piece]))),
    }
}

/// Smaller NARs fit into a packet or two as they are.
const COMPRESSED_MIN: u64 = 4 * 1024;
