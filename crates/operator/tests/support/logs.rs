//! What the operators of this process log, for tests to read. Lines are told apart by the test's namespace.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};

use tracing_subscriber::fmt::MakeWriter;

#[derive(Clone, Default)]
pub struct Logs(Arc<Mutex<Vec<u8>>>);

impl Logs {
    /// The one log of this process.
    pub fn shared() -> Self {
        static LOGS: OnceLock<Logs> = OnceLock::new();
        LOGS.get_or_init(|| {
            let logs = Logs::default();
            tracing_subscriber::fmt()
                .with_env_filter("info,usher_operator=debug")
                .with_ansi(false)
                .with_writer(logs.clone())
                .init();
            logs
        })
        .clone()
    }

    /// Lines that contain all of these.
    pub fn with(&self, parts: &[&str]) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned();
        let fits = |line: &&str| parts.iter().all(|part| line.contains(part));
        text.lines().filter(fits).map(str::to_owned).collect()
    }
}

impl io::Write for Logs {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Logs {
    type Writer = Logs;

    fn make_writer(&'a self) -> Logs {
        self.clone()
    }
}
