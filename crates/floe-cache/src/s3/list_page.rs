//! The pages in which a server lists the objects of a bucket.

use object_store::path::Path;
use quick_xml::Reader;
use quick_xml::escape::unescape;
use quick_xml::events::Event;

/// Returns a page of a list without the objects and folders of other programs whose names
/// object_store does not accept, such as `a//b`: it would refuse the whole page. `None` if the page
/// is no XML.
pub(super) fn without_foreign_names(page: &[u8]) -> Option<String> {
    let text = str::from_utf8(page).ok()?;
    // The reader does not count a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader::from_str(text);
    let (mut kept, mut copied) = (String::with_capacity(text.len()), 0);
    loop {
        let start = usize::try_from(reader.buffer_position()).ok()?;
        let element = match reader.read_event().ok()? {
            Event::Start(element) => element,
            Event::Eof => break,
            _ => continue,
        };
        let tag = match element.local_name().as_ref() {
            b"Contents" => "Key",
            b"CommonPrefixes" => "Prefix",
            _ => continue,
        };
        let contents = reader.read_text(element.name()).ok()?;
        if !has_usable_name(&contents.decode().ok()?, tag) {
            kept.push_str(text.get(copied..start)?);
            copied = usize::try_from(reader.buffer_position()).ok()?;
        }
    }
    kept.push_str(text.get(copied..)?);
    Some(kept)
}

/// Whether object_store accepts the name of an object or folder. An element without a name is for
/// object_store to judge.
fn has_usable_name(contents: &str, element: &str) -> bool {
    let (begin, end) = (format!("<{element}>"), format!("</{element}>"));
    let rest = contents.split_once(&begin).map(|(_, rest)| rest);
    let name = rest.and_then(|rest| rest.split_once(&end));
    let name = name.and_then(|(name, _)| unescape(name).ok());
    name.is_none_or(|name| Path::parse(name).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_object_store_refuses_are_left_out() {
        let object = |key: &str| format!("<Contents><Key>{key}</Key><Size>3</Size></Contents>\n");
        let folder = |key: &str| format!("<CommonPrefixes><Prefix>{key}</Prefix></CommonPrefixes>");
        let page = |elements: &[String]| {
            format!(
                "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/\">\
                 <Name>b</Name><Prefix></Prefix>{}</ListBucketResult>",
                elements.concat()
            )
        };
        let good = [
            object("a.narinfo"),
            object("b &amp; c"),
            folder("nar/"),
            object("z"),
        ];
        let foreign = [object("a//b"), object("../x"), folder("x//"), folder("./")];
        assert_eq!(
            without_foreign_names(page(&good).as_bytes()),
            Some(page(&good))
        );
        let mixed: Vec<String> = good
            .iter()
            .zip(&foreign)
            .flat_map(|(a, b)| [b, a])
            .cloned()
            .collect();
        let kept = without_foreign_names(page(&mixed).as_bytes()).unwrap();
        let names = |page: &str| -> Vec<String> {
            let parts = page
                .split("<Key>")
                .chain(page.split("<CommonPrefixes><Prefix>"));
            parts
                .filter_map(|part| Some(part.split_once("</")?.0.to_owned()))
                .collect()
        };
        assert_eq!(names(&kept), names(&page(&good)));
        let marked = format!("\u{feff}{}", page(&mixed));
        assert_eq!(without_foreign_names(marked.as_bytes()), Some(kept));
        for broken in [
            &b"\xff"[..],
            b"<a><Contents>",
            b"<ListBucketResult></Other>",
        ] {
            assert_eq!(without_foreign_names(broken), None);
        }
    }
}
