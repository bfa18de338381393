//! Range requests: exactly the requested bytes of the resource are sent.

use floe_testkit::http_client::{Response, hash_part};

use super::{NAR_HEADERS, assert_response, libc_path, nar_target, serve_jq};

/// Parses a multipart body into content type, range and bytes of each part.
fn parts(response: &Response) -> Vec<(String, String, Vec<u8>)> {
    let kind = response.field("Content-Type").unwrap();
    let boundary = kind
        .strip_prefix("multipart/byteranges; boundary=")
        .unwrap();
    let mut rest: &[u8] = &response.body;
    let mut parts = Vec::new();
    loop {
        let line = format!("\r\n--{boundary}");
        rest = rest.strip_prefix(line.as_bytes()).unwrap();
        if rest == b"--\r\n" {
            return parts;
        }
        let head_len = rest.windows(4).position(|it| it == b"\r\n\r\n").unwrap();
        let head = std::str::from_utf8(&rest[..head_len]).unwrap();
        let field = |name: &str| {
            let line = head.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().to_owned()
        };
        let range = field("Content-Range:");
        let (first, last) = range
            .strip_prefix("bytes ")
            .unwrap()
            .split_once('-')
            .unwrap();
        let last = last.split('/').next().unwrap();
        let len = last.parse::<usize>().unwrap() - first.parse::<usize>().unwrap() + 1;
        let body = rest[head_len + 4..][..len].to_vec();
        rest = &rest[head_len + 4 + len..];
        parts.push((field("Content-Type:"), range, body));
    }
}

#[test]
fn single_range_is_206_with_exact_bytes() {
    let Some((corpus, serve)) = serve_jq() else {
        return;
    };
    for path in &corpus.paths {
        let url = nar_target(&serve, path);
        let whole = serve.get(&url).body;
        let len = whole.len();
        for (field, first, end) in [
            ("0-9".to_owned(), 0, 10),
            ("0-0".into(), 0, 1),
            ("100-".into(), 100, len),
            ("-5".into(), len - 5, len),
            ("-99999999999999999999".into(), 0, len),
            (
                format!("{}-{}", len / 2, len / 2 + 777),
                len / 2,
                len / 2 + 778,
            ),
            (format!("{}-", len - 1), len - 1, len),
            (format!("5-{}", len + 5), 5, len),
            ("0-".into(), 0, len),
        ] {
            let response = serve.get_with(&url, &format!("Range: bytes={field}\r\n"));
            let range = format!("bytes {first}-{}/{len}", end - 1);
            let length = (end - first).to_string();
            let fields = [
                ("Content-Range", range.as_str()),
                ("Content-Length", &length),
            ];
            assert_response(&field, &response, 206, &fields);
            assert_response(&field, &response, 206, NAR_HEADERS);
            assert!(response.body == whole[first..end], "{path}: {field}");
        }
        let unsatisfiable = format!("bytes */{len}");
        for field in [format!("{len}-"), "-0".into(), format!("{len}-{}", len + 9)] {
            let response = serve.get_with(&url, &format!("Range: bytes={field}\r\n"));
            assert_response(&field, &response, 416, &[("Content-Range", &unsatisfiable)]);
        }
        for field in [
            "items=0-9",
            "bytes=9-0",
            "bytes=x",
            "bytes 0-9",
            "bytes=0-,0-",
        ] {
            let response = serve.get_with(&url, &format!("Range: {field}\r\n"));
            assert_response(field, &response, 200, &[("Content-Range", "-")]);
            assert!(response.body == whole, "{field}");
        }
    }
}

#[test]
fn several_ranges_are_multipart_with_right_length() {
    let Some((corpus, serve)) = serve_jq() else {
        return;
    };
    for path in &corpus.paths {
        let url = nar_target(&serve, path);
        let whole = serve.get(&url).body;
        let len = whole.len();
        let ranges = [(0, 4), (len / 2, len / 2 + 100), (30, 31), (len - 5, len)];
        let list = ranges
            .map(|(first, end)| format!("{first}-{}", end - 1))
            .join(", ");
        let mut client = serve.connect();
        let response = client.request("GET", &url, &format!("Range: bytes={list}\r\n"));
        assert_response(
            path,
            &response,
            206,
            &[("Content-Range", "-"), ("Accept-Ranges", "bytes")],
        );
        let parts = parts(&response);
        assert_eq!(parts.len(), ranges.len());
        for ((kind, range, body), (first, end)) in parts.iter().zip(ranges) {
            assert_eq!(kind, "application/x-nix-nar");
            assert_eq!(*range, format!("bytes {first}-{}/{len}", end - 1));
            assert!(*body == whole[first..end], "{path}: {range}");
        }
        assert_eq!(
            client.request("GET", "/", "").status,
            200,
            "the announced length is wrong"
        );
    }
}

#[test]
fn if_range_applies_to_current_strong_etag_only() {
    let Some((corpus, serve)) = serve_jq() else {
        return;
    };
    for path in [&corpus.root, libc_path(&corpus)] {
        for url in [
            nar_target(&serve, path),
            format!("/nar/{}.nar", hash_part(path)),
        ] {
            let etag = serve.head(&url).field("ETag").unwrap().to_owned();
            for (version, status) in [
                (etag.as_str(), 206),
                ("\"other\"", 200),
                (&format!("W/{etag}"), 200),
                ("Sun, 06 Nov 1994 08:49:37 GMT", 200),
            ] {
                let fields = format!("Range: bytes=10-\r\nIf-Range: {version}\r\n");
                assert_eq!(serve.get_with(&url, &fields).status, status, "{version}");
            }
        }
    }
}

#[test]
fn head_ignores_ranges() {
    let Some((corpus, serve)) = serve_jq() else {
        return;
    };
    let url = nar_target(&serve, libc_path(&corpus));
    let file = format!("/serve/{}/usr/bin/jq", hash_part(&corpus.root));
    for target in [url, file] {
        // RFC 9110, section 14.2: ranges are defined for GET only.
        let head = serve.head(&target);
        for range in ["bytes=0-9", "bytes=999999999999-"] {
            let field = format!("Range: {range}\r\n");
            let ranged = serve.connect().request("HEAD", &target, &field);
            assert_eq!(ranged.stable_head(), head.stable_head(), "{target}");
        }
    }
}
