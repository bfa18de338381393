//! Certificates for servers on the loopback address.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::run;

/// A server certificate for 127.0.0.1, issued by a private authority.
pub struct Certificates {
    /// The file with the certificate of the authority.
    pub authority: String,
    /// The lines of nginx.conf that name the server's certificate and key.
    pub server: String,
    /// The files of the server's certificate and key.
    pub server_files: [String; 2],
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
        server_files: [certificate, key],
        client: [name("client.pem"), name("client.key")],
    }
}

/// A private authority, which issues certificates into its directory.
pub struct Authority {
    openssl: PathBuf,
    directory: PathBuf,
    name: String,
}

/// The files of a certificate that an [`Authority`] has issued.
#[derive(Clone)]
pub struct Issued {
    /// The certificate in PEM form.
    pub certificate: String,
    /// Its key in PEM form.
    pub key: String,
}

impl Authority {
    /// Creates an authority with a certificate of its own.
    pub fn create(openssl: &Path, directory: &Path, name: &str) -> Authority {
        let authority = Authority {
            openssl: openssl.into(),
            directory: directory.into(),
            name: name.into(),
        };
        let subject = format!("/CN=floe {name}");
        let files = [authority.key(), authority.certificate()];
        run(Command::new(openssl)
            .args(["req", "-x509", "-nodes", "-days", "2"])
            .args(NEW_KEY)
            .args(["-subj", &subject, "-keyout", &files[0], "-out", &files[1]]))
        .expect(0);
        authority
    }

    /// Returns the file with the certificate of the authority.
    pub fn certificate(&self) -> String {
        self.file(&self.name, "pem")
    }

    /// Issues a certificate that becomes valid in the year 2098.
    pub fn issue_for_later(&self, file: &str) -> Issued {
        let issued = self.issue(file, "IP:127.0.0.1", 1);
        let settings = self.file(file, "cnf");
        let index = self.file(file, "index");
        let text = format!(
            "[ca]\ndefault_ca = own\n[own]\ndatabase = {index}\nrand_serial = yes\n\
             default_md = sha256\npolicy = any\n[any]\ncommonName = supplied\n"
        );
        fs::write(&settings, text).unwrap();
        fs::write(&index, "").unwrap();
        run(Command::new(&self.openssl)
            .args(["ca", "-batch", "-notext", "-config", &settings, "-outdir"])
            .arg(&self.directory)
            .args(["-extfile", &self.file(file, "ext")])
            .args([
                "-startdate",
                "20980101000000Z",
                "-enddate",
                "20990101000000Z",
            ])
            .args(["-cert", &self.certificate(), "-keyfile", &self.key()])
            .args(["-in", &self.file(file, "csr"), "-out", &issued.certificate]))
        .expect(0);
        issued
    }

    /// Issues a certificate for names such as `DNS:cache.test,IP:127.0.0.1`. It expires after this
    /// many days; a negative number makes one that has expired.
    pub fn issue(&self, file: &str, names: &str, days: i32) -> Issued {
        let issued = Issued {
            certificate: self.file(file, "pem"),
            key: self.file(file, "key"),
        };
        let (request, extensions) = (self.file(file, "csr"), self.file(file, "ext"));
        let text = format!("basicConstraints=critical,CA:FALSE\nsubjectAltName={names}\n");
        fs::write(&extensions, text).unwrap();
        let subject = format!("/CN=floe {file}");
        run(Command::new(&self.openssl)
            .args(["req", "-new", "-nodes"])
            .args(NEW_KEY)
            .args(["-subj", &subject, "-keyout", &issued.key, "-out", &request]))
        .expect(0);
        run(Command::new(&self.openssl)
            .args([
                "x509",
                "-req",
                "-days",
                &days.to_string(),
                "-CAcreateserial",
            ])
            .args(["-CA", &self.certificate(), "-CAkey", &self.key()])
            .args([
                "-extfile",
                &extensions,
                "-in",
                &request,
                "-out",
                &issued.certificate,
            ]))
        .expect(0);
        issued
    }

    fn key(&self) -> String {
        self.file(&self.name, "key")
    }

    fn file(&self, name: &str, end: &str) -> String {
        let file = self.directory.join(format!("{name}.{end}"));
        file.display().to_string()
    }
}

const NEW_KEY: [&str; 4] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];

/// A certificate of version 1 of X.509 in PEM form. Some versions of openssl issue such a
/// certificate if they get no extensions.
pub const CERTIFICATE_OF_VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBEjCBuQIUTO75D6sein/+wEJMX+OHHZs0VTkwCgYIKoZIzj0EAwIwDDEKMAgG\n\
A1UEAwwBeDAeFw0yNjExMzAyMzI4MjJaFw0yNjEyMzAyMzI4MjJaMAwxCjAIBgNV\n\
BAMMAXgwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQ2XK0FY4K//cRRJd2VJNSD\n\
qwmnPe+m5oae8pYor8+6OEQzg9/+pwujR6A39lfieaqVyI9ep+8i/gGz7i/RmrmR\n\
MAoGCCqGSM49BAMCA0gAMEUCIQCgyifcWux0vT6hwIJ7NbFc8O0i9CVVlwzRtzCw\n\
XDFslgIgTxrxOMat14xBT4vubcnW2kKE41osmNKzNyxE8l/lK3s=\n\
-----END CERTIFICATE-----\n";
