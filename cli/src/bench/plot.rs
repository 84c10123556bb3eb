//! The plots of a report, as SVG.

use std::ops::Range;

use plotters::{
    chart::{ChartBuilder, SeriesLabelPosition},
    coord::combinators::IntoLogRange as _,
    drawing::{DrawingAreaErrorKind, IntoDrawingArea as _},
    element::{Circle, PathElement},
    prelude::SVGBackend,
    series::LineSeries,
    style::{Color as _, RGBColor, WHITE},
};

/// Width and height in pixels.
const SIZE: (u32, u32) = (880, 460);

/// Colours that colour-blind readers can distinguish: Okabe and Ito, "Color Universal Design",
/// 2008.
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(120, 94, 60),
    RGBColor(70, 70, 70),
];

/// A named series of points.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    /// Draws a line instead of points.
    pub(crate) has_line: bool,
}

/// A plot with a logarithmic y axis, without points that it cannot show.
#[derive(Debug)]
pub(crate) struct Plot<'a> {
    pub(crate) title: &'a str,
    pub(crate) x_name: &'a str,
    pub(crate) y_name: &'a str,
    /// Formats the labels of the x axis.
    pub(crate) x_label: fn(f64) -> String,
    pub(crate) series: Vec<Series>,
}

impl Plot<'_> {
    /// Returns the SVG, or `None` without points.
    pub(crate) fn svg(&self) -> Option<String> {
        let points = self.series.iter().flat_map(|series| &series.points);
        let shown: Vec<_> = points.copied().filter(is_shown).collect();
        let x = range(shown.iter().map(|point| point.0))?;
        let y = range(shown.iter().map(|point| point.1))?;
        let margin = (x.end - x.start).max(1e-9) * 0.03;
        let x = x.start - margin..x.end + margin;
        let mut svg = String::new();
        self.draw(&mut svg, x, y.start / 1.5..y.end * 1.5)
            .expect("writing to a string cannot fail");
        Some(svg)
    }

    fn draw(
        &self,
        svg: &mut String,
        x: Range<f64>,
        y: Range<f64>,
    ) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .caption(self.title, ("sans-serif", 18))
            .x_label_area_size(42)
            .y_label_area_size(84)
            .build_cartesian_2d(x, y.log_scale())?;
        chart
            .configure_mesh()
            .light_line_style(RGBColor(240, 240, 240))
            .x_desc(self.x_name)
            .y_desc(self.y_name)
            .x_label_formatter(&|x| (self.x_label)(*x))
            .y_label_formatter(&|y| short(*y))
            .draw()?;
        for (series, colour) in self.series.iter().zip(COLOURS.iter().cycle()) {
            let points: Vec<_> = series.points.iter().copied().filter(is_shown).collect();
            let style = colour.stroke_width(2);
            if series.has_line {
                chart
                    .draw_series(LineSeries::new(points, style))?
                    .label(&series.name)
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
            } else {
                let circle = colour.filled();
                chart
                    .draw_series(points.iter().map(|&point| Circle::new(point, 4, circle)))?
                    .label(&series.name)
                    .legend(move |(x, y)| Circle::new((x + 10, y), 4, circle));
            }
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .background_style(WHITE.mix(0.85))
            .border_style(RGBColor(200, 200, 200))
            .draw()?;
        area.present()
    }
}

fn is_shown(point: &(f64, f64)) -> bool {
    point.0.is_finite() && point.1.is_finite() && point.1 > 0.0
}

fn range(values: impl Iterator<Item = f64>) -> Option<Range<f64>> {
    let ends = values.fold(None, |ends: Option<(f64, f64)>, value| {
        let (least, most) = ends.unwrap_or((value, value));
        Some((least.min(value), most.max(value)))
    });
    ends.map(|(least, most)| least..most)
}

/// Formats a number of any size in few characters.
fn short(value: f64) -> String {
    match value {
        1e6.. => format!("{:.0} M", value / 1e6),
        1e3.. => format!("{:.0} k", value / 1e3),
        1.0.. => format!("{value:.0}"),
        _ => {
            let digits = (1.0 - value.max(1e-9).log10().floor()) as usize;
            let text = format!("{value:.digits$}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: Vec<(f64, f64)>) -> Plot<'static> {
        let series = Series { name: "a <name>".to_owned(), points, has_line: true };
        Plot { title: "T", x_name: "x", y_name: "y", x_label: short, series: vec![series] }
    }

    #[test]
    fn plot_without_points_is_none() {
        assert_eq!(plot(Vec::new()).svg(), None);
        assert_eq!(plot(vec![(1.0, 0.0), (f64::NAN, 1.0)]).svg(), None);
    }

    #[test]
    fn svg_contains_series_names() {
        let svg = plot(vec![(0.0, 0.001), (10.0, 3.0), (5.0, 0.0)]).svg().unwrap();
        assert!(svg.starts_with("<svg"), "{svg}");
        assert!(svg.contains("a &lt;name&gt;"), "{svg}");
    }

    #[test]
    fn labels_are_short() {
        let cases = [(0.0014, "0.0014"), (0.1, "0.1"), (3.0, "3"), (1e4, "10 k"), (2e6, "2 M")];
        for (value, want) in cases {
            assert_eq!(short(value), want);
        }
    }
}
