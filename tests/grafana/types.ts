// What Grafana's own schema says of a dashboard whose queries go to Prometheus. Its type Dashboard knows annotations of
// any data source only, so those of Prometheus are named here after Grafana's Prometheus plugin (PromAnnotation).
import type { AnnotationQuery, Dashboard, DataQuery } from '@grafana/schema';

type PromQuery = DataQuery & { expr: string; legendFormat?: string; format?: 'time_series' | 'heatmap' | 'table'; interval?: string };
type PromAnnotation = AnnotationQuery<PromQuery> & { titleFormat?: string; textFormat?: string; step?: string };

export type PrometheusDashboard = Omit<Dashboard, 'annotations'> & { annotations: { list: PromAnnotation[] } };
