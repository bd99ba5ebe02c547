//! A control plane of this run's own: started through xtask, taken down with the run, also when it is killed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::error::{Error, Result};
use crate::etcd::Etcd;
use crate::process;

/// A control plane that runs.
#[derive(Debug)]
pub(crate) struct Plane {
    xtask: PathBuf,
    pub(crate) dir: PathBuf,
    guard: Option<Child>,
    components: Vec<Component>,
}

/// One server of it.
#[derive(Debug, Clone)]
pub(crate) struct Component {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) pid: u32,
}

impl Plane {
    /// Starts one without scheduler in a folder that xtask makes, and kills its controller manager: nobody but the bench and the operator
    /// is to write.
    pub(crate) fn start(xtask: &Path, dir: &Path, durable: bool) -> Result<Self> {
        let mut plane = Self {
            xtask: xtask.to_owned(),
            dir: dir.to_owned(),
            guard: None,
            components: Vec::new(),
        };
        plane.guard = Some(plane.guard()?);
        let durable: &[&str] = if durable { &["--durable"] } else { &[] };
        plane.command(&["up", "--no-scheduler"], durable)?;
        plane.command(&["kill", "kube-controller-manager"], &[])?;
        plane.components = plane.read_state()?;
        Ok(plane)
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.dir.join("kubeconfig")
    }

    pub(crate) fn etcd(&self) -> Etcd {
        Etcd::new(&self.dir.join("etcd.sock"))
    }

    pub(crate) fn components(&self) -> &[Component] {
        &self.components
    }

    /// Processor seconds of etcd and the API server so far.
    pub(crate) fn cpu(&self) -> Vec<(String, f64)> {
        let components = self.components.iter();
        components
            .map(|c| (c.name.clone(), process::cpu_seconds(c.pid)))
            .collect()
    }

    fn read_state(&self) -> Result<Vec<Component>> {
        let path = self.dir.join("state.json");
        let text = std::fs::read_to_string(&path).map_err(Error::at("read", &path))?;
        let state: Value = serde_json::from_str(&text).unwrap_or_default();
        let listed = state.get("components").and_then(Value::as_array);
        let components = listed.into_iter().flatten().filter_map(|component| {
            let version = component.get("version")?;
            let part = |name: &str| version.get(name).map(ToString::to_string).unwrap_or_default();
            let version = [part("major"), part("minor"), part("patch")].join(".");
            Some(Component {
                name: component.get("component")?.as_str()?.to_owned(),
                version,
                pid: u32::try_from(component.pointer("/process/pid")?.as_u64()?).ok()?,
            })
        });
        Ok(components.filter(|c| c.name != "kube-controller-manager").collect())
    }

    /// `kill -9` leaves no last word: a process of xtask's own takes the control plane down then.
    fn guard(&self) -> Result<Child> {
        let stat = std::fs::read_to_string("/proc/self/stat").map_err(Error::io("read /proc/self/stat"))?;
        let ticks = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(19));
        Command::new(&self.xtask)
            .args(["k8s", "guard", "--pid", &std::process::id().to_string()])
            .args(["--start-ticks", ticks.unwrap_or("0"), "--dir"])
            .arg(&self.dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(Error::at("start", &self.xtask))
    }

    fn command(&self, words: &[&str], flags: &[&str]) -> Result<()> {
        let output = Command::new(&self.xtask)
            .arg("k8s")
            .args(words)
            .args(flags)
            .arg("--dir")
            .arg(&self.dir)
            .stdin(Stdio::null())
            .output()
            .map_err(Error::at("start", &self.xtask))?;
        if output.status.success() {
            return Ok(());
        }
        Err(Error::Program {
            program: format!("{} k8s {}", self.xtask.display(), words.join(" ")),
            said: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        if let Err(error) = self.command(&["down"], &[]) {
            eprintln!("the control plane in {} is left: {error}", self.dir.display());
        }
        if let Some(guard) = &mut self.guard {
            let _ = guard.kill();
            let _ = guard.wait();
        }
    }
}
