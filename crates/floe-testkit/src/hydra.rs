//! A server that replays the replies of a Hydra.
//!
//! The replies have the form that `hydra-api.yaml` of Hydra documents. They were not recorded from
//! a real one.

use std::fs;

use serde_json::{Value, json};

use crate::fault_server::{Fault, FaultServer};
use crate::{Scratch, scratch};

/// A Hydra with the project `team` and the jobset `main`.
pub struct Hydra {
    directory: Scratch,
    /// Injects faults and records requests.
    pub server: FaultServer,
}

impl Hydra {
    /// Starts a server without builds.
    pub fn start() -> Hydra {
        let directory = scratch();
        for name in ["build", "api"] {
            fs::create_dir(directory.join(name)).unwrap();
        }
        let server = FaultServer::start(directory.path());
        Hydra { directory, server }
    }

    /// Returns the name source.
    pub fn source(&self) -> String {
        format!("hydra+{}/team/main?prefix=pkgs.", self.server.url())
    }

    /// Adds a build to those of a package. `status` is its `buildstatus`; `None` means that it has
    /// not finished. The path `latest` leads to the newest successful build.
    pub fn add_build(&self, name: &str, id: u64, status: Option<i64>, outputs: &[(&str, &str)]) {
        let system = format!("{}-linux", std::env::consts::ARCH);
        let job = format!("pkgs.{name}.{system}");
        let paths = outputs
            .iter()
            .map(|(output, path)| ((*output).to_owned(), json!({ "path": path })));
        let path = outputs.first().map_or("", |(_, path)| path);
        let nix_name = path.rsplit('/').next().unwrap().split_once('-');
        let build = json!({
            "id": id,
            "project": "team",
            "jobset": "main",
            "job": job,
            "nixname": nix_name.map_or(name, |(_, name)| name),
            "system": system,
            "finished": i64::from(status.is_some()),
            "buildstatus": status,
            "timestamp": 1_700_000_000,
            "stoptime": status.map(|_| 1_700_000_100),
            "drvpath": null,
            "priority": 100,
            "jobsetevals": [1],
            "buildoutputs": paths.collect::<serde_json::Map<String, Value>>(),
        });
        self.write(&format!("build/{id}"), &build);
        let recent = format!("api/latestbuilds?nr=20&project=team&jobset=main&job={job}");
        let before = fs::read(self.directory.join(&recent)).unwrap_or_else(|_| b"[]".to_vec());
        let Value::Array(mut builds) = serde_json::from_slice(&before).unwrap() else {
            unreachable!("only this function writes the list");
        };
        let mut short = build;
        short.as_object_mut().unwrap().remove("buildoutputs");
        builds.insert(0, short);
        self.write(&recent, &Value::Array(builds));
        if status == Some(0) {
            let latest = format!("job/team/main/{job}/latest");
            let target = format!("{}/build/{id}", self.server.url());
            self.server.set_fault(&latest, Fault::Redirect(target));
        }
    }

    /// Replaces a document of the server, such as `build/7`.
    pub fn write(&self, name: &str, document: &Value) {
        fs::write(self.directory.join(name), document.to_string()).unwrap();
    }
}
