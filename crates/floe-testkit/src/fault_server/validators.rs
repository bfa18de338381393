//! Validators of files, and the requests that use them.

use std::collections::HashMap;

use super::{Fault, Response};

impl Response {
    /// Adds an `ETag`. If the request asks for a range of this version of the file, reduces the
    /// body to it.
    pub(super) fn add_etag(&mut self, fields: &HashMap<String, String>) {
        let len = self.body.len();
        let tag = format!("\"{len}-{}\"", self.fault == Some(Fault::ChangedEtag));
        self.head.push_str(&format!("ETag: {tag}\r\n"));
        if fields.get("if-none-match") == Some(&tag) && self.status == 200 {
            self.status = 304;
            self.body.clear();
            return;
        }
        let is_same = fields.get("if-range").is_none_or(|seen| *seen == tag);
        let range = fields
            .get("range")
            .filter(|_| is_same && self.status == 200)
            .filter(|_| self.fault != Some(Fault::IgnoredRange));
        let range = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
        let parsed = range.and_then(|(first, last)| {
            let last: Option<usize> = last.parse().ok();
            Some((first.parse::<usize>().ok()?, last))
        });
        if let Some((first, last)) = parsed {
            self.body.truncate(last.map_or(len, |last| last + 1));
            self.body.drain(..first);
            if self.fault == Some(Fault::OtherRange) {
                self.body.iter_mut().for_each(|byte| *byte = !*byte);
            }
            if let Some(Fault::PartialRange(len)) = self.fault {
                self.body.truncate(len);
            }
            let last = first + self.body.len() - 1;
            let range = format!("Content-Range: bytes {first}-{last}/{len}\r\n");
            self.head.push_str(&range);
            self.status = 206;
        }
    }
}
