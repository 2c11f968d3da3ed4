// Two of INCEPTIONN's NICs back to back: a frame of gradients is compressed, crosses the wire, and is restored.
`timescale 1ns / 1ps

// A NIC with its host at the registers; the host's frames and the wire are ports.
module station (
    input clk, input rst,
    input [255:0] send_data, input [31:0] send_keep, input send_last, input send_valid, output send_ready,
    output [255:0] got_data, output [31:0] got_keep, output got_last, output got_valid,
    output [255:0] tx_data, output [31:0] tx_keep, output tx_last, output tx_valid, input tx_ready,
    input [255:0] rx_data, input [31:0] rx_keep, input rx_last, input rx_valid, output rx_ready
);
    `include "inceptionn_nic.vh"
    `include "inceptionn_nic_instance.vh"

    assign host_tx_tdata = send_data, host_tx_tkeep = send_keep, host_tx_tlast = send_last;
    assign host_tx_tvalid = send_valid, send_ready = host_tx_tready;
    assign got_data = host_rx_tdata, got_keep = host_rx_tkeep, got_last = host_rx_tlast, got_valid = host_rx_tvalid;
    assign host_rx_tready = 1;  // the host takes a word in every cycle
    assign tx_data = mac_tx_tdata, tx_keep = mac_tx_tkeep, tx_last = mac_tx_tlast, tx_valid = mac_tx_tvalid;
    assign mac_rx_tdata = rx_data, mac_rx_tkeep = rx_keep, mac_rx_tlast = rx_last, mac_rx_tvalid = rx_valid;
    assign mac_tx_tready = tx_ready, rx_ready = mac_rx_tready, mac_rx_tuser = 0;  // no frame is bad

    host host (
        .clk(clk), .awaddr(axil_awaddr), .awprot(axil_awprot), .awvalid(axil_awvalid), .awready(axil_awready),
        .wdata(axil_wdata), .wstrb(axil_wstrb), .wvalid(axil_wvalid), .wready(axil_wready), .bresp(axil_bresp),
        .bvalid(axil_bvalid), .bready(axil_bready), .araddr(axil_araddr), .arprot(axil_arprot),
        .arvalid(axil_arvalid), .arready(axil_arready), .rdata(axil_rdata), .rresp(axil_rresp),
        .rvalid(axil_rvalid), .rready(axil_rready)
    );

    task configure(input [3:0] bound);  // errors are at most 2^-bound
        begin
            host.expect_word(INCEPTIONN_NIC_ID_OFFSET, INCEPTIONN_NIC_ID_RESET);
            host.expect_word(INCEPTIONN_NIC_VERSION_OFFSET, INCEPTIONN_NIC_VERSION_RESET);
            host.write(INCEPTIONN_NIC_SETTINGS_OFFSET,
                       INCEPTIONN_NIC_SETTINGS_COMPRESS_MASK | INCEPTIONN_NIC_SETTINGS_DECOMPRESS_MASK
                       | INCEPTIONN_NIC_SETTINGS_MODE_MASK | bound << INCEPTIONN_NIC_SETTINGS_BOUND_SHIFT);
        end
    endtask
endmodule

module inceptionn_tb;
    `include "inceptionn_settings.vh"
    localparam BEATS = (BYTES + 31) / 32, KEEP = 32'hffffffff >> (32 * BEATS - BYTES);

    reg clk = 0, rst = 1;
    always #2 clk = !clk;
    integer cycle = 0, sent = 0, got = 0, wire_bytes = 0, lane;
    always @(posedge clk) cycle <= cycle + 1;

    reg [255:0] frame[0:BEATS-1], restored[0:BEATS-1];
    reg sending = 0;
    wire send_ready, got_last, got_valid, unused_last, unused_valid, unused_ready;
    wire [255:0] got_data, unused_data, data_0, data_1;
    wire [31:0] got_keep, unused_keep, keep_0, keep_1;
    wire last_0, last_1, valid_0, valid_1, ready_0, ready_1;
    station sender (
        clk, rst, frame[sent], sent == BEATS - 1 ? KEEP : 32'hffffffff, sent == BEATS - 1, sending, send_ready,
        unused_data, unused_keep, unused_last, unused_valid,
        data_0, keep_0, last_0, valid_0, ready_0, data_1, keep_1, last_1, valid_1, ready_1
    );
    station receiver (
        clk, rst, 256'b0, 32'b0, 1'b0, 1'b0, unused_ready,
        got_data, got_keep, got_last, got_valid,
        data_1, keep_1, last_1, valid_1, ready_1, data_0, keep_0, last_0, valid_0, ready_0
    );

    always @(posedge clk) begin
        if (sending && send_ready) begin
            if (sent == BEATS - 1) sending <= 0;
            else sent <= sent + 1;
        end
        if (valid_0 && ready_0) begin
            for (lane = 0; lane < 32; lane = lane + 1) if (keep_0[lane]) wire_bytes = wire_bytes + 1;
        end
        if (got_valid) begin
            for (lane = 0; lane < 32; lane = lane + 1)
                if (got_keep[lane] && got_data[8*lane+:8] != restored[got][8*lane+:8]) begin
                    $display("FAIL: byte %0d is %h, not %h", 32 * got + lane, got_data[8*lane+:8],
                             restored[got][8*lane+:8]);
                    $fatal;
                end
            if (got_last != (got == BEATS - 1) || (got_last && got_keep != KEEP)) begin
                $display("FAIL: the frame has another length");
                $fatal;
            end
            got <= got + 1;
        end
    end

    initial begin
        $readmemh("inceptionn_sent.hex", frame);
        $readmemh("inceptionn_restored.hex", restored);
        repeat (4) @(negedge clk);
        rst = 0;
        fork
            sender.configure(10);
            receiver.configure(10);
        join
        $display("cycle %0d: both NICs compress", cycle);
        sending = 1;
        wait (got == BEATS);
        $display("cycle %0d: the frame has crossed", cycle);
        if (wire_bytes != WIRE_BYTES) begin
            $display("FAIL: the compressed frame has %0d bytes, not %0d", wire_bytes, WIRE_BYTES);
            $fatal;
        end
        $display("%0d bytes, of which %0d on the wire", BYTES, wire_bytes);
        $display("PASS");
        $finish;
    end

    initial begin
        repeat (20000) @(posedge clk);
        $display("FAIL: 20,000 cycles have passed");
        $fatal;
    end
endmodule
