//! Where the figures were made: without it they mean nothing.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Machine and program versions, with the usher binary's where one is measured. `load` is that when the run began.
pub(crate) fn setting(usher: Option<&Path>, load: String) -> BTreeMap<&'static str, String> {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = line("/proc/meminfo", "MemTotal:").and_then(|kib| kib.split_whitespace().next()?.parse::<f64>().ok());
    let model = line("/proc/cpuinfo", "model name").unwrap_or_default();
    let model = model.trim_start_matches([' ', '\t', ':']).to_owned();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut setting = BTreeMap::from([
        (
            "machine",
            format!(
                "{model}, {cores} cores, {:.0} GB, Linux {}",
                memory.unwrap_or(0.0) * 1024.0 / 1e9,
                kernel.trim()
            ),
        ),
        (
            "load",
            format!("{load} when it began, {} at the end (1, 5, 15 minutes)", load_average()),
        ),
        ("rustc", said("rustc".as_ref(), &["--version"])),
        (
            "profile",
            if cfg!(debug_assertions) {
                "debug: figures mean nothing"
            } else {
                "release"
            }
            .to_owned(),
        ),
    ]);
    if let Some(usher) = usher {
        setting.insert("usher", said(usher.as_os_str(), &["--version"]));
    }
    setting
}

/// How busy the machine was over the last minutes, by whomever.
pub(crate) fn load_average() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

fn line(file: &str, begin: &str) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix(begin))
        .map(|rest| rest.trim().to_owned())
}

fn said(program: &std::ffi::OsStr, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(
        |e| e.to_string(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
