//! Certificates for servers on the loopback address.

use std::path::Path;
use std::process::Command;

use crate::command::run;

/// A server certificate for 127.0.0.1, issued by a private authority.
pub struct Certificates {
    /// The file with the certificate of the authority.
    pub authority: String,
    /// The lines of nginx.conf that name the server's certificate and key.
    pub server: String,
    /// The files of a client's certificate, issued by the same authority, and of its key.
    pub client: [String; 2],
}

/// Creates the certificates in a directory.
pub fn create_certificates(openssl: &Path, directory: &Path) -> Certificates {
    let name = |file: &str| directory.join(file).display().to_string();
    let request = |subject: &str, files: [&str; 2], more: &[&str]| {
        let curve = "ec_paramgen_curve:prime256v1";
        let (key, certificate) = (name(files[0]), name(files[1]));
        run(Command::new(openssl)
            .args([
                "req", "-x509", "-nodes", "-days", "2", "-newkey", "ec", "-pkeyopt", curve,
            ])
            .args(["-subj", subject, "-keyout", &key, "-out", &certificate])
            .args(more))
        .expect(0);
    };
    request("/CN=floe test authority", ["ca.key", "ca.pem"], &[]);
    let (ca, ca_key) = (name("ca.pem"), name("ca.key"));
    let (address, no_ca) = (
        "subjectAltName=IP:127.0.0.1",
        "basicConstraints=critical,CA:FALSE",
    );
    let by_ca = [
        "-CA", &ca, "-CAkey", &ca_key, "-addext", address, "-addext", no_ca,
    ];
    request("/CN=floe test server", ["server.key", "server.pem"], &by_ca);
    request("/CN=floe test client", ["client.key", "client.pem"], &by_ca);
    let (certificate, key) = (name("server.pem"), name("server.key"));
    Certificates {
        authority: ca,
        server: format!("ssl_certificate {certificate}; ssl_certificate_key {key};"),
        client: [name("client.pem"), name("client.key")],
    }
}
