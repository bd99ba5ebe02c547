//! Other processes as the kernel knows them: processor time and memory.

/// Clock ticks per second in /proc: fixed at 100 on Linux for programs.
const TICKS: f64 = 100.0;

/// Processor seconds that a process has used so far; 0 where it is gone.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The program's name is in parentheses and may contain anything: fields count from behind it.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
    // `utime` and `stime` are fields 14 and 15, the state behind the name is field 3.
    let ticks = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok());
    ticks.sum::<f64>() / TICKS
}

/// Megabytes (10^6 bytes) of one line of /proc/PID/status: `VmRSS`, `VmHWM`.
pub(crate) fn megabytes(pid: u32, line: &str) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let value = status
        .lines()
        .find_map(|text| text.strip_prefix(line)?.strip_prefix(':'));
    let kib = value.and_then(|value| value.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) * 1024.0 / 1e6
}
