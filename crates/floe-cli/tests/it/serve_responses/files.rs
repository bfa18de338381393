//! `/serve`: files and directories within a path, and symlinks out of it.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::PathBuf;

use floe_testkit::http_client::{Response, hash_part};
use floe_testkit::{Nix, Scratch, nixes, scratch};

use super::assert_response;
use crate::server_process::ServerProcess;

/// A store with a path full of symlinks, and one that some of them point to.
struct SymlinkTree {
    scratch: Scratch,
    tree: String,
}

impl SymlinkTree {
    fn new(nix: &Nix) -> SymlinkTree {
        let scratch = scratch();
        let root = scratch.join("root");
        let add = |path: PathBuf| {
            nix.store(&root, [PathBuf::from("--add"), path])
                .trim()
                .to_owned()
        };
        fs::create_dir_all(scratch.join("target/bin")).unwrap();
        fs::write(scratch.join("target/bin/tool"), "the tool").unwrap();
        let target = add(scratch.join("target"));
        fs::write(scratch.join("secret"), "secret").unwrap();
        let tree = scratch.join("tree");
        fs::create_dir_all(tree.join("bin/deep er")).unwrap();
        fs::write(tree.join("bin/a&b<c>.txt"), "text").unwrap();
        fs::write(tree.join("page.html"), "<p>").unwrap();
        fs::write(tree.join("bin/deep er/é"), "e").unwrap();
        fs::write(tree.join("empty"), "").unwrap();
        fs::write(tree.join("run"), "#!").unwrap();
        fs::set_permissions(tree.join("run"), fs::Permissions::from_mode(0o755)).unwrap();
        let deleted = format!("/nix/store/{}-deleted", "0".repeat(32));
        fs::create_dir_all(root.join(&deleted[1..])).unwrap();
        fs::write(root.join(&deleted[1..]).join("file"), "not valid").unwrap();
        let secret = scratch.join("secret").display().to_string();
        for (name, to) in [
            ("relative", "bin/a&b<c>.txt".to_owned()),
            ("up", "bin/../page.html".into()),
            ("inside", format!("{target}/bin/tool")),
            ("directory", format!("{target}/bin")),
            ("by-way-of", "directory/tool".into()),
            (
                "sibling",
                format!("../{}/bin/tool", &target["/nix/store/".len()..]),
            ),
            ("dangling", "no-such".into()),
            ("out", secret),
            ("etc", "/etc".into()),
            ("climbs", "../../../../etc/passwd".into()),
            ("store-itself", "/nix/store".into()),
            ("above", "..".into()),
            ("not-valid", format!("{deleted}/file")),
            ("like-the-store", "/nix/store-2/x".into()),
            ("loop", "loop".into()),
            ("loop-a", "loop-b".into()),
            ("loop-b", "./loop-a".into()),
        ] {
            symlink(to, tree.join(name)).unwrap();
        }
        let tree = add(tree);
        SymlinkTree { scratch, tree }
    }

    fn serve(&self) -> ServerProcess {
        ServerProcess::start(self.scratch.join("root"), &[])
    }

    fn get(&self, serve: &ServerProcess, path: &str) -> Response {
        serve.get(&format!("/serve/{}{path}", hash_part(&self.tree)))
    }
}

#[test]
fn files_and_symlinks_within_the_store_are_served() {
    for nix in &nixes() {
        let links = SymlinkTree::new(nix);
        let serve = links.serve();
        let plain = "text/plain; charset=utf-8";
        let bytes = "application/octet-stream";
        for (path, text, kind) in [
            ("/bin/a&b%3cc%3e.txt", "text", plain),
            ("/bin//a&b%3Cc%3E.txt", "text", plain),
            ("/page.html", "<p>", "text/html; charset=utf-8"),
            ("/bin/deep%20er/%c3%a9", "e", bytes),
            ("/empty", "", bytes),
            ("/run", "#!", bytes),
            ("/relative", "text", bytes),
            ("/up", "<p>", bytes),
            ("/inside", "the tool", bytes),
            ("/directory/tool", "the tool", bytes),
            ("/by-way-of", "the tool", bytes),
            ("/sibling", "the tool", bytes),
        ] {
            let response = links.get(&serve, path);
            let fields = [
                ("Content-Type", kind),
                ("Cache-Control", "max-age=3600"),
                ("Accept-Ranges", "bytes"),
                ("X-Content-Type-Options", "nosniff"),
            ];
            assert_response(path, &response, 200, &fields);
            assert_eq!(response.text(), text, "{path}");
        }
        let target = format!("/serve/{}/page.html", hash_part(&links.tree));
        let part = serve.get_with(&target, "Range: bytes=1-\r\n");
        assert_eq!((part.status, part.text()), (206, "p>"));
        let empty = format!("/serve/{}/empty", hash_part(&links.tree));
        assert_eq!(serve.get_with(&empty, "Range: bytes=0-\r\n").status, 416);
        assert_eq!(serve.stop(), "");
    }
}

#[test]
fn symlinks_out_of_the_store_and_missing_files_are_404() {
    for nix in &nixes() {
        let links = SymlinkTree::new(nix);
        let serve = links.serve();
        for path in [
            "/dangling",
            "/out",
            "/etc",
            "/etc/passwd",
            "/climbs",
            "/store-itself",
            "/above",
            "/above/x",
            "/not-valid",
            "/like-the-store",
            "/loop",
            "/loop-a",
            "/loop-a/x",
            "/page.html/x",
            "/no-such",
            "/..",
            "/bin/../page.html",
            "/bin/..%2fpage.html",
            "/%00",
            "/page.html%00",
            "/bin/%2e%2e/page.html",
        ] {
            let response = links.get(&serve, path);
            assert_response(path, &response, 404, super::NO_STORE_HEADERS);
        }
        assert_eq!(serve.stop(), "");
    }
}

#[test]
fn directory_page_links_to_its_entries() {
    for nix in &nixes() {
        let links = SymlinkTree::new(nix);
        let serve = links.serve();
        for path in ["", "/", "/bin", "/bin/", "/bin/deep%20er", "/directory"] {
            let page = links.get(&serve, path);
            let kind = [("Content-Type", "text/html; charset=utf-8")];
            assert_response(path, &page, 200, &kind);
            let hrefs: Vec<&str> = page.text().split("href=\"").skip(1).collect();
            assert!(!hrefs.is_empty(), "{path}");
            for href in hrefs {
                let href = href.split('"').next().unwrap();
                let dead = [
                    "/dangling",
                    "/out",
                    "/etc",
                    "/climbs",
                    "/store-itself",
                    "/above",
                    "/not-valid",
                    "/like-the-store",
                    "/loop",
                    "/loop-a",
                    "/loop-b",
                ];
                let status = if dead.iter().any(|name| href.ends_with(name)) {
                    404
                } else {
                    200
                };
                assert_eq!(serve.get(href).status, status, "{path}: {href}");
            }
        }
        let page = links.get(&serve, "/bin/");
        assert!(
            page.text().contains("a&amp;b&lt;c&gt;.txt"),
            "{}",
            page.text()
        );
        assert!(!page.text().contains("<c>"), "{}", page.text());
    }
}
