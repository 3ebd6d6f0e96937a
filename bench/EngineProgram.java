import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Runs Debezium's engine with a consumer that appends the rows of the events to a file.
 *
 * <p>Lines of the input: {@code start <properties> <file>}, {@code expect <number of events since the start>},
 * {@code stop}. The program answers each with a line that begins with {@code "> "}; it answers {@code expect} once that
 * many events were consumed. A line of the file is the text of an event up to the end of its member {@code after}.
 */
public final class EngineProgram {
    private static long count;
    private static String failure;

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        ExecutorService threads = Executors.newCachedThreadPool();
        DebeziumEngine<ChangeEvent<String, String>> engine = null;
        BufferedWriter file = null;
        System.out.println("> ready");
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "start" -> {
                    count = 0;
                    Properties properties = new Properties();
                    try (Reader reader = Files.newBufferedReader(Path.of(words[1]))) {
                        properties.load(reader);
                    }
                    BufferedWriter into = Files.newBufferedWriter(Path.of(words[2]));
                    file = into;
                    engine = DebeziumEngine.create(Json.class)
                            .using(properties)
                            .using((success, message, error) -> fail(success ? null : message))
                            .notifying((events, committer) -> consume(events, committer, into))
                            .build();
                    threads.execute(engine);
                    System.out.println("> started");
                }
                case "expect" -> {
                    await(Long.parseLong(words[1]));
                    System.out.println("> " + (failure == null ? "reached" : "failed: " + failure));
                }
                case "stop" -> {
                    engine.close();
                    file.close();
                    System.out.println("> stopped");
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
        threads.shutdownNow();
        threads.awaitTermination(10, TimeUnit.SECONDS);
    }

    private static void consume(
            List<ChangeEvent<String, String>> events,
            DebeziumEngine.RecordCommitter<ChangeEvent<String, String>> committer,
            BufferedWriter into)
            throws InterruptedException {
        try {
            for (ChangeEvent<String, String> event : events) {
                String value = event.value();
                into.write(value, 0, value.indexOf(",\"source\":"));
                into.write("}\n");
                committer.markProcessed(event);
            }
        } catch (IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
        committer.markBatchFinished();
        synchronized (EngineProgram.class) {
            count += events.size();
            EngineProgram.class.notifyAll();
        }
    }

    private static synchronized void await(long expected) throws InterruptedException {
        while (count < expected && failure == null) {
            EngineProgram.class.wait();
        }
    }

    private static synchronized void fail(String message) {
        failure = message;
        EngineProgram.class.notifyAll();
    }
}
