//! A real Prometheus with the configuration in docs/operating.md.

use std::fs;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use floe_testkit::http_client::{Client, narinfo_of};
use floe_testkit::{Scratch, corpus, find_tool, scratch, wait_until, with_free_ports};
use serde_json::Value;

use super::rules::docs;
use crate::server_process::ServerProcess;

/// A Prometheus process, killed on drop.
struct Prometheus {
    process: Child,
    port: u16,
    _files: Scratch,
}

impl Prometheus {
    /// Starts Prometheus with the documented configuration, which names port 5000, for a server on
    /// another port. If Prometheus is not installed, records a skip.
    fn start(serve: &ServerProcess) -> Option<Prometheus> {
        let program = find_tool("prometheus", "prometheus")?;
        let files = scratch();
        let config = documented_config();
        assert!(config.contains("127.0.0.1:5000"), "{config}");
        let address = serve.url().replace("http://", "");
        let config = config.replace("127.0.0.1:5000", &address);
        let config = format!("global:\n  scrape_interval: 1s\n  evaluation_interval: 1s\n{config}");
        let rules = "floe-alerts.yml";
        fs::copy(docs(&format!("monitoring/{rules}")), files.join(rules)).unwrap();
        fs::write(files.join("prometheus.yml"), config).unwrap();
        let start = |[port]: [u16; 1]| {
            Command::new(&program)
                .arg("--config.file=prometheus.yml")
                .arg("--storage.tsdb.path=data")
                .arg(format!("--web.listen-address=127.0.0.1:{port}"))
                .current_dir(files.join(""))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        };
        let is_ready = |[port]: [u16; 1]| TcpStream::connect(("127.0.0.1", port)).is_ok();
        let (process, [port]) = with_free_ports(start, is_ready);
        Some(Prometheus {
            process,
            port,
            _files: files,
        })
    }

    /// Returns a result of the API, or null as long as Prometheus starts.
    fn get(&self, target: &str) -> Value {
        let mut client = Client::connect(&format!("127.0.0.1:{}", self.port));
        let response = client.request("GET", target, "");
        serde_json::from_slice(&response.body).unwrap_or_default()
    }

    /// Returns the value of a query that has one sample.
    fn query(&self, query: &str) -> Option<f64> {
        let found = self.get(&format!("/api/v1/query?query={query}"));
        let value = found["data"]["result"][0]["value"][1].as_str()?;
        value.parse().ok()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _: std::io::Result<()> = self.process.kill();
        let _: std::io::Result<std::process::ExitStatus> = self.process.wait();
    }
}

/// Returns the block of configuration in the manual.
fn documented_config() -> String {
    let manual = fs::read_to_string(docs("operating.md")).unwrap();
    let start = manual.find("```\nrule_files:").unwrap() + 4;
    let end = manual[start..].find("```").unwrap();
    manual[start..start + end].to_owned()
}

#[test]
fn prometheus_scrapes_a_server_and_evaluates_the_rules() {
    let Some(corpus) = corpus("jq") else { return };
    let serve = ServerProcess::start(corpus.store(), &[]);
    let Some(prometheus) = Prometheus::start(&serve) else {
        return;
    };
    for _ in 0..7 {
        serve.get(&narinfo_of(&corpus.root));
    }
    let narinfos = "floe_http_requests_total%7Broute=%22narinfo%22,status=%22200%22%7D";
    wait_until("Prometheus does not count the requests", || {
        prometheus.query(narinfos) == Some(7.0) && prometheus.query("up") == Some(1.0)
    });
    wait_until("the rules are not evaluated", || {
        let rules = prometheus.get("/api/v1/rules");
        let rules = rules["data"]["groups"][0]["rules"].as_array();
        rules.is_some_and(|rules| {
            let is_good = |rule: &Value| rule["health"] == "ok" && rule["state"] == "inactive";
            rules.len() > 10 && rules.iter().all(is_good)
        })
    });
    drop(serve);
    wait_until("the end of the server is not noticed", || {
        prometheus.query("ALERTS%7Balertname=%22FloeDown%22%7D") == Some(1.0)
    });
}
