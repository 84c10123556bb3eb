//! The report as a page: HTML with its plots in it, and nothing from elsewhere.

use super::{
    case::{Asked, Cache, Filters},
    fill::ideal,
    levels::Level,
    plot::{Plot, Series},
    report::{CaseReport, Report},
};

/// Points of the ideal curve, a tenth of a bit apart.
const IDEAL_STEP_BITS: f64 = 0.1;

const REQUESTS_CAPTION: &str = "Data blocks that a lookup of an absent key asks for in vain, against the \
    memory of the filters. The curve is what no filters of this memory can undercut; the points of one \
    store are what was measured while its memory was cut, and the line near them is what the planner \
    predicted. Lower is better.";

const LATENCIES_CAPTION: &str = "Time of a lookup of an absent key while every block is in memory: so \
    many per cent of all lookups take less. It includes reading the clock, some 30 ns.";

const COLD_CAPTION: &str = "The same while nothing but indexes and filters is in memory: a needless block \
    costs a read of the device.";

const RATES_CAPTION: &str = "Share of the filters asked for a key that their table does not have which say \
    that it may, level by level, measured and as their sizes let expect. Filters of equal bits err alike on \
    all levels; planned ones err most where a bit costs most.";

/// The page.
pub(crate) fn html(report: &Report) -> String {
    let plots = [
        (requests(report), REQUESTS_CAPTION),
        (latencies(report, Cache::All), LATENCIES_CAPTION),
        (latencies(report, Cache::Cold), COLD_CAPTION),
        (rates(report), RATES_CAPTION),
    ];
    let figures = plots.into_iter().filter_map(|(svg, caption)| {
        Some(format!("<figure>\n{}<figcaption>{caption}</figcaption>\n</figure>\n", svg?))
    });
    let plots: String = figures.collect();
    let faults =
        report.faults.iter().map(|fault| format!("<p><b>Wrong: {}</b></p>\n", text(fault)));
    let faults: String = faults.collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <title>sieve bench misses</title>\n\
         <style>body {{ font: 16px sans-serif; max-width: 60em; margin: 2em auto; }} \
         pre {{ overflow-x: auto; font-size: 12px; }} figure {{ margin: 2em 0; }} \
         figcaption {{ color: #444; }}</style>\n\
         <h1>What a lookup of an absent key costs</h1>\n{faults}{plots}<pre>{}</pre>\n</html>\n",
        text(&report.table())
    )
}

/// Reads of a miss against memory.
fn requests(report: &Report) -> Option<String> {
    let keys = report.setup.stored.max(1) as f64;
    let bits = |bytes: u64| bytes as f64 * 8.0 / keys;
    let uniform = report.stores.iter().map(|store| {
        let found = find(report, store.filters, Cache::All, Asked::Absent);
        let found = found.map(|case| case.data_block_requests_per_lookup);
        let points = found.map(|requests| (bits(store.filter_memory_bytes), requests));
        let name = store.filters.to_owned();
        Series { name, points: points.into_iter().collect(), has_line: false }
    });
    let swept = |name: &str, value: fn(&super::sweep::Step) -> f64, has_line| Series {
        name: name.to_owned(),
        points: report
            .sweep
            .iter()
            .map(|step| (bits(step.filter_memory_bytes), value(step)))
            .collect(),
        has_line,
    };
    let steps = (report.setup.bits_per_key / IDEAL_STEP_BITS) as u64;
    let curve = (0..=steps).map(|step| {
        let bits = step as f64 * IDEAL_STEP_BITS;
        (bits, ideal(&report.setup.runs, bits))
    });
    let ideal = Series { name: "ideal".to_owned(), points: curve.collect(), has_line: true };
    let series = [
        ideal,
        swept("Auto, memory cut", |step| step.data_block_requests, false),
        swept("Auto, predicted", |step| step.predicted, true),
    ];
    Plot {
        title: "Data-block requests for an absent key",
        x_name: "filter bits per key in memory",
        y_name: "requests per lookup",
        x_label: |bits| format!("{bits:.0}"),
        series: series.into_iter().chain(uniform).collect(),
    }
    .svg()
}

/// The distribution of latencies of misses.
fn latencies(report: &Report, cache: Cache) -> Option<String> {
    // Each step to the right is ten times as rare.
    let rarity = |quantile: f64| -(1.0 - quantile).log10();
    let series = Filters::ALL.into_iter().filter_map(|filters| {
        let case = find(report, filters.name(), cache, Asked::Absent)?;
        let points = report.latency_quantiles.iter().zip(&case.latency_ns);
        let points = points.map(|(quantile, ns)| (rarity(*quantile), *ns as f64)).collect();
        Some(Series { name: filters.name().to_owned(), points, has_line: true })
    });
    Plot {
        title: &format!("Latency of an absent key, {}", cache.name()),
        x_name: "share of lookups below",
        y_name: "ns",
        x_label: |rarity| format!("{} %", 100.0 - 100.0 * 0.1_f64.powf(rarity)),
        series: series.collect(),
    }
    .svg()
}

/// False-positive rates, level by level.
fn rates(report: &Report) -> Option<String> {
    let rate = |level: &Level| {
        let counters = level.counters;
        let asked = counters.negatives + counters.false_positives;
        (asked > 0).then(|| counters.false_positives as f64 / asked as f64)
    };
    let series = Filters::ALL.into_iter().skip(1).filter_map(|filters| {
        let case = find(report, filters.name(), Cache::All, Asked::Absent)?;
        let points =
            case.levels.iter().filter_map(|level| Some((level.level.into(), rate(level)?)));
        let name = format!("{}, measured", filters.name());
        let expected = case
            .levels
            .iter()
            .map(|level| (f64::from(level.level) + 0.08, level.false_positive_rate_expected));
        let of_name = format!("{}, expected", filters.name());
        Some([
            Series { name, points: points.collect(), has_line: false },
            Series { name: of_name, points: expected.collect(), has_line: false },
        ])
    });
    Plot {
        title: "False positives of the filters of each level",
        x_name: "level",
        y_name: "rate",
        x_label: |level| {
            if level.fract().abs() < 0.01 { format!("{level:.0}") } else { String::new() }
        },
        series: series.flatten().collect(),
    }
    .svg()
}

fn find<'a>(
    report: &'a Report,
    filters: &str,
    cache: Cache,
    asked: Asked,
) -> Option<&'a CaseReport> {
    report.cases.iter().find(|case| {
        case.filters == filters && case.cache == cache.name() && case.asked == asked.name()
    })
}

/// As HTML has it.
fn text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
